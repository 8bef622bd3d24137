package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// jsonHeader is a pair [name, base64 or null].
type jsonHeader struct {
	name  string
	value []byte
}

func (h jsonHeader) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.name, h.value})
}

func (h *jsonHeader) UnmarshalJSON(data []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	if len(parts) != 2 {
		return fmt.Errorf("header %s is not a pair", data)
	}
	if err := json.Unmarshal(parts[0], &h.name); err != nil {
		return err
	}
	return json.Unmarshal(parts[1], &h.value)
}

// jsonRecord is one line. Go's JSON writes []byte as base64 and a nil slice as null, which is what the lines need.
type jsonRecord struct {
	Partition     int32        `json:"partition"`
	Offset        int64        `json:"offset"`
	Timestamp     *int64       `json:"timestamp"`
	TimestampType string       `json:"timestamp_type,omitempty"`
	Key           []byte       `json:"key"`
	Value         []byte       `json:"value"`
	Headers       []jsonHeader `json:"headers"`
}

func (r *jsonRecord) toKafka(topic string) *kgo.Record {
	record := &kgo.Record{Topic: topic, Partition: r.Partition, Key: r.Key, Value: r.Value}
	if r.Timestamp != nil {
		record.Timestamp = time.UnixMilli(*r.Timestamp)
	}
	for _, header := range r.Headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.name, Value: header.value})
	}
	return record
}

func fromKafka(record *kgo.Record) *jsonRecord {
	timestamp := record.Timestamp.UnixMilli()
	timestampType := "CreateTime"
	if record.Attrs.TimestampType() == 1 {
		timestampType = "LogAppendTime"
	}
	headers := make([]jsonHeader, 0, len(record.Headers))
	for _, header := range record.Headers {
		headers = append(headers, jsonHeader{header.Key, header.Value})
	}
	return &jsonRecord{
		Partition:     record.Partition,
		Offset:        record.Offset,
		Timestamp:     &timestamp,
		TimestampType: timestampType,
		Key:           record.Key,
		Value:         record.Value,
		Headers:       headers,
	}
}
