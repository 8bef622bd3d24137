package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

func (s *session) getConfigs(ctx context.Context) (document, error) {
	var described kadm.ResourceConfigs
	var err error
	if s.resource == "broker" {
		id, parseErr := strconv.ParseInt(s.name, 10, 32)
		if parseErr != nil {
			return nil, parseErr
		}
		described, err = s.kadm.DescribeBrokerConfigs(ctx, int32(id))
	} else {
		described, err = s.kadm.DescribeTopicConfigs(ctx, s.name)
	}
	if err != nil {
		return nil, err
	}
	resource, err := described.On(s.name, nil)
	if err != nil {
		return nil, err
	}
	configs := document{}
	for _, config := range resource.Configs {
		configs[config.Key] = document{
			"value":     config.Value,
			"source":    config.Source.String(),
			"sensitive": config.Sensitive,
		}
	}
	return document{"configs": configs}, resource.Err
}

func (s *session) changes() []kadm.AlterConfig {
	var changes []kadm.AlterConfig
	add := func(op kadm.IncrementalOp, pairs repeated) {
		for _, pair := range pairs {
			key, value, hasValue := strings.Cut(pair, "=")
			change := kadm.AlterConfig{Op: op, Name: key}
			if hasValue {
				change.Value = &value
			}
			changes = append(changes, change)
		}
	}
	add(kadm.SetConfig, s.set)
	add(kadm.DeleteConfig, s.unset)
	add(kadm.AppendConfig, s.appended)
	add(kadm.SubtractConfig, s.subtracted)
	return changes
}

func (s *session) setConfigs(ctx context.Context) (document, error) {
	if s.resource == "broker" {
		id, err := strconv.ParseInt(s.name, 10, 32)
		if err != nil {
			return nil, err
		}
		return altered(s.kadm.AlterBrokerConfigs(ctx, s.changes(), int32(id)))
	}
	if s.validateOnly {
		return altered(s.kadm.ValidateAlterTopicConfigs(ctx, s.changes(), s.name))
	}
	return altered(s.kadm.AlterTopicConfigs(ctx, s.changes(), s.name))
}

// replaceConfigs is the older AlterConfigs request: what it does not name returns to its default.
func (s *session) replaceConfigs(ctx context.Context) (document, error) {
	if s.resource != "topic" {
		return nil, fmt.Errorf("replace-configs serves topics only")
	}
	return altered(s.kadm.AlterTopicConfigsState(ctx, s.changes(), s.name))
}

func altered(responses kadm.AlterConfigsResponses, err error) (document, error) {
	if err != nil {
		return nil, err
	}
	for _, response := range responses {
		if response.Err != nil {
			return nil, response.Err
		}
	}
	return document{}, nil
}
