package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const deliveryTimeout = 40 * time.Second

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var ackNames = map[string]kgo.Acks{
	"all": kgo.AllISRAcks(),
	"1":   kgo.LeaderAck(),
	"0":   kgo.NoAck(),
}

// delivery is one delivery report: where the record went, or the protocol's name of why it did not.
type delivery struct {
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Error     string `json:"error,omitempty"`
}

func produce(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("produce", flag.ContinueOnError)
	bootstrap := flags.String("bootstrap", "", "host:port, comma separated")
	topic := flags.String("topic", "", "")
	codec := flags.String("codec", "none", "none, gzip, snappy, lz4 or zstd")
	acks := flags.String("acks", "all", "all, 1 or 0")
	idempotent := flags.Bool("idempotent", false, "")
	batchBytes := flags.Int("batch-bytes", 1_000_000, "largest batch before compression")
	if err := flags.Parse(args); err != nil {
		return err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(*bootstrap, ",")...),
		kgo.ClientID("tidelog-peer-franz-go"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[*codec]),
		kgo.RequiredAcks(ackNames[*acks]),
		kgo.ProducerBatchMaxBytes(int32(*batchBytes)),
		kgo.ProducerLinger(5 * time.Millisecond),
	}
	if !*idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	records, err := readRecords(os.Stdin, *topic)
	if err != nil {
		return err
	}
	// franz-go's own delivery timeout counts from the record's timestamp, which may lie years back.
	ctx, cancel := context.WithTimeout(ctx, deliveryTimeout)
	defer cancel()
	return send(ctx, client, records)
}

func readRecords(input io.Reader, topic string) ([]*kgo.Record, error) {
	var records []*kgo.Record
	decoder := json.NewDecoder(bufio.NewReaderSize(input, 1<<20))
	for {
		var line jsonRecord
		if err := decoder.Decode(&line); err == io.EOF {
			return records, nil
		} else if err != nil {
			return nil, fmt.Errorf("record %d: %w", len(records), err)
		}
		records = append(records, line.toKafka(topic))
	}
}

func send(ctx context.Context, client *kgo.Client, records []*kgo.Record) error {
	failures := make(map[*kgo.Record]error)
	for _, result := range client.ProduceSync(ctx, records...) {
		if result.Err != nil {
			failures[result.Record] = result.Err
		}
	}
	printer := newPrinter()
	for _, record := range records {
		report := delivery{Partition: record.Partition, Offset: record.Offset}
		if err, failed := failures[record]; failed {
			report = delivery{Partition: record.Partition, Offset: -1, Error: kafkaError(err)}
			if report.Error == "" {
				return err
			}
		}
		if err := printer.Encode(report); err != nil {
			return err
		}
	}
	return nil
}
