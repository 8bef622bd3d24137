package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// document is what one admin action prints, as JSON.
type document map[string]any

// repeated collects a flag that may be given several times.
type repeated []string

func (r *repeated) String() string { return strings.Join(*r, ",") }

func (r *repeated) Set(value string) error {
	*r = append(*r, value)
	return nil
}

type adminOptions struct {
	bootstrap, topic, resource, name, at string
	partition, partitions, replicas      int
	before, epoch                        int64
	validateOnly                         bool
	set, unset, appended, subtracted     repeated
}

func parseAdmin(action string, args []string) (*adminOptions, error) {
	options := &adminOptions{}
	flags := flag.NewFlagSet(action, flag.ContinueOnError)
	flags.StringVar(&options.bootstrap, "bootstrap", "", "host:port, comma separated")
	flags.StringVar(&options.topic, "topic", "", "")
	flags.StringVar(&options.resource, "resource", "topic", "topic or broker")
	flags.StringVar(&options.name, "name", "", "topic name or broker id")
	flags.StringVar(&options.at, "at", "latest", "earliest, latest, max-timestamp or milliseconds")
	flags.IntVar(&options.partition, "partition", 0, "")
	flags.IntVar(&options.partitions, "partitions", -1, "")
	flags.IntVar(&options.replicas, "replicas", -1, "")
	flags.Int64Var(&options.before, "before", -1, "")
	flags.Int64Var(&options.epoch, "epoch", 0, "")
	flags.BoolVar(&options.validateOnly, "validate-only", false, "")
	flags.Var(&options.set, "set", "key=value")
	flags.Var(&options.unset, "delete", "key")
	flags.Var(&options.appended, "append", "key=value")
	flags.Var(&options.subtracted, "subtract", "key=value")
	return options, flags.Parse(args)
}

type session struct {
	*adminOptions
	client *kgo.Client
	kadm   *kadm.Client
}

var actions = map[string]func(*session, context.Context) (document, error){
	"create-topic":      (*session).createTopic,
	"list-topics":       (*session).listTopics,
	"describe-topic":    (*session).describeTopic,
	"delete-topic":      (*session).deleteTopic,
	"create-partitions": (*session).createPartitions,
	"get-configs":       (*session).getConfigs,
	"set-configs":       (*session).setConfigs,
	"replace-configs":   (*session).replaceConfigs,
	"list-offsets":      (*session).listOffsets,
	"delete-records":    (*session).deleteRecords,
	"offset-for-epoch":  (*session).offsetForEpoch,
	"describe-cluster":  (*session).describeCluster,
	"describe-log-dirs": (*session).describeLogDirs,
}

func admin(ctx context.Context, args []string) error {
	if len(args) == 0 || actions[args[0]] == nil {
		return fmt.Errorf("unknown admin action in %q", args)
	}
	options, err := parseAdmin(args[0], args[1:])
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(options.bootstrap, ",")...),
		kgo.ClientID("tidelog-peer-franz-go"),
		kgo.RetryTimeout(20*time.Second),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	result, err := actions[args[0]](&session{options, client, kadm.NewClient(client)}, ctx)
	if err != nil {
		if kafkaError(err) == "" {
			return err
		}
		result = document{"error": kafkaError(err)}
	}
	return newPrinter().Encode(result)
}

func (s *session) createTopic(ctx context.Context) (document, error) {
	configs := make(map[string]*string)
	for _, pair := range s.set {
		key, value, _ := strings.Cut(pair, "=")
		configs[key] = &value
	}
	create := s.kadm.CreateTopics
	if s.validateOnly {
		create = s.kadm.ValidateCreateTopics
	}
	created, err := create(ctx, int32(s.partitions), int16(s.replicas), configs, s.topic)
	if err != nil {
		return nil, err
	}
	topic := created[s.topic]
	return document{"partitions": topic.NumPartitions, "replicas": topic.ReplicationFactor}, topic.Err
}

func (s *session) listTopics(ctx context.Context) (document, error) {
	topics, err := s.kadm.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	return document{"topics": topics.Names()}, topics.Error()
}

func (s *session) describeTopic(ctx context.Context) (document, error) {
	topics, err := s.kadm.ListTopics(ctx, s.topic)
	if err != nil {
		return nil, err
	}
	topic := topics[s.topic]
	if topic.Err != nil {
		return nil, topic.Err
	}
	partitions := []document{}
	for _, partition := range topic.Partitions.Sorted() {
		partitions = append(partitions, document{
			"partition": partition.Partition,
			"leader":    partition.Leader,
			"replicas":  partition.Replicas,
			"isr":       partition.ISR,
		})
	}
	return document{"topic_id": strings.TrimRight(topic.ID.String(), "="), "internal": topic.IsInternal, "partitions": partitions}, nil
}

func (s *session) deleteTopic(ctx context.Context) (document, error) {
	_, err := s.kadm.DeleteTopic(ctx, s.topic)
	return document{}, err
}

func (s *session) createPartitions(ctx context.Context) (document, error) {
	update := s.kadm.UpdatePartitions
	if s.validateOnly {
		update = s.kadm.ValidateUpdatePartitions
	}
	created, err := update(ctx, s.partitions, s.topic)
	if err != nil {
		return nil, err
	}
	return document{}, created[s.topic].Err
}

func (s *session) listOffsets(ctx context.Context) (document, error) {
	listed, byTime, err := s.listAt(ctx)
	if err != nil {
		return nil, err
	}
	offset, _ := listed.Lookup(s.topic, int32(s.partition))
	if offset.Err != nil {
		return nil, offset.Err
	}
	if byTime && offset.Timestamp == -1 {
		// Nothing that young: kadm answers with the end of the log where the protocol says -1.
		return document{"offset": -1, "timestamp": -1}, nil
	}
	return document{"offset": offset.Offset, "timestamp": offset.Timestamp}, nil
}

func (s *session) listAt(ctx context.Context) (kadm.ListedOffsets, bool, error) {
	var listed kadm.ListedOffsets
	var err error
	switch s.at {
	case "earliest":
		listed, err = s.kadm.ListStartOffsets(ctx, s.topic)
	case "latest":
		listed, err = s.kadm.ListEndOffsets(ctx, s.topic)
	case "max-timestamp":
		listed, err = s.kadm.ListMaxTimestampOffsets(ctx, s.topic)
	default:
		var millis int64
		if _, err := fmt.Sscan(s.at, &millis); err != nil {
			return nil, false, err
		}
		listed, err = s.kadm.ListOffsetsAfterMilli(ctx, millis, s.topic)
		return listed, true, err
	}
	return listed, false, err
}

func (s *session) deleteRecords(ctx context.Context) (document, error) {
	offsets := make(kadm.Offsets)
	offsets.AddOffset(s.topic, int32(s.partition), s.before, -1)
	deleted, err := s.kadm.DeleteRecords(ctx, offsets)
	if err != nil {
		return nil, err
	}
	partition, found := deleted.Lookup(s.topic, int32(s.partition))
	if !found {
		return nil, errors.New("the reply leaves the partition out")
	}
	return document{"low_watermark": partition.LowWatermark}, partition.Err
}

func (s *session) offsetForEpoch(ctx context.Context) (document, error) {
	request := make(kadm.OffsetForLeaderEpochRequest)
	request.Add(s.topic, int32(s.partition), int32(s.epoch))
	answered, err := s.kadm.OffsetForLeaderEpoch(ctx, request)
	if err != nil {
		return nil, err
	}
	partition := answered[s.topic][int32(s.partition)]
	return document{"epoch": partition.LeaderEpoch, "end_offset": partition.EndOffset}, partition.Err
}

func (s *session) describeCluster(ctx context.Context) (document, error) {
	reply, err := kmsg.NewPtrDescribeClusterRequest().RequestWith(ctx, s.client)
	if err != nil {
		return nil, err
	}
	brokers := []document{}
	for _, broker := range reply.Brokers {
		brokers = append(brokers, document{"id": broker.NodeID, "host": broker.Host, "port": broker.Port})
	}
	return document{"cluster_id": reply.ClusterID, "controller": reply.ControllerID, "brokers": brokers}, nil
}

func (s *session) describeLogDirs(ctx context.Context) (document, error) {
	all, err := s.kadm.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		return nil, err
	}
	dirs := []document{}
	all.Each(func(dir kadm.DescribedLogDir) {
		if dir.Err != nil {
			err = dir.Err
		}
		partitions := []document{}
		for _, partition := range dir.Topics.Sorted() {
			partitions = append(partitions, document{
				"topic":      partition.Topic,
				"partition":  partition.Partition,
				"size":       partition.Size,
				"offset_lag": partition.OffsetLag,
			})
		}
		dirs = append(dirs, document{
			"broker":       dir.Broker,
			"dir":          dir.Dir,
			"total_bytes":  dir.TotalBytes,
			"usable_bytes": dir.UsableBytes,
			"partitions":   partitions,
		})
	})
	sort.Slice(dirs, func(i, j int) bool { return dirs[i]["dir"].(string) < dirs[j]["dir"].(string) })
	return document{"dirs": dirs}, err
}
