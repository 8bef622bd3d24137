package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func consume(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("consume", flag.ContinueOnError)
	bootstrap := flags.String("bootstrap", "", "host:port, comma separated")
	topic := flags.String("topic", "", "")
	partition := flags.Int("partition", 0, "")
	from := flags.Int64("from", 0, "first offset")
	count := flags.Int("count", 0, "records to read")
	isolation := flags.String("isolation", "read_uncommitted", "read_uncommitted or read_committed")
	timeoutMs := flags.Int("timeout-ms", 30_000, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	level := kgo.ReadUncommitted()
	if *isolation == "read_committed" {
		level = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(*bootstrap, ",")...),
		kgo.ClientID("tidelog-peer-franz-go"),
		kgo.FetchIsolationLevel(level),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
			*topic: {int32(*partition): kgo.NewOffset().At(*from)},
		}),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(*timeoutMs)*time.Millisecond)
	defer cancel()
	return printRecords(ctx, client, *count)
}

func printRecords(ctx context.Context, client *kgo.Client, count int) error {
	printer := newPrinter()
	for seen := 0; seen < count; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("%w: got %d of %d", errTooFew, seen, count)
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			if seen == count {
				break
			}
			if err := printer.Encode(fromKafka(record)); err != nil {
				return err
			}
			seen++
		}
	}
	return nil
}
