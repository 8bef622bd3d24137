// Command franzgo is franz-go as a peer: `produce`, `consume` and `admin` as tests/peers/drivers.py describes them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kerr"
)

const exitTooFew = 3

// errTooFew says that the wanted records did not arrive in time: the caller may have expected that.
var errTooFew = errors.New("too few records")

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, errTooFew) {
			os.Exit(exitTooFew)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("name a command: produce, consume or admin")
	}
	switch args[0] {
	case "produce":
		return produce(ctx, args[1:])
	case "consume":
		return consume(ctx, args[1:])
	case "admin":
		return admin(ctx, args[1:])
	}
	return fmt.Errorf("unknown command %q: expected produce, consume or admin", args[0])
}

// kafkaError gives the protocol's name of an error that a broker answered, or "" for any other failure.
func kafkaError(err error) string {
	var answered *kerr.Error
	if errors.As(err, &answered) {
		return answered.Message
	}
	return ""
}

func newPrinter() *json.Encoder {
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	return encoder
}
