//go:build segmentio

package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

func init() { play, code = segmentio, segmentioCode }

func segmentioCode(err error) (int, bool) {
	var known kafka.Error
	if errors.As(err, &known) {
		return int(known), true
	}
	var many kafka.WriteErrors
	if errors.As(err, &many) {
		for _, each := range many {
			if errors.As(each, &known) {
				return int(known), true
			}
		}
	}
	var large kafka.MessageTooLargeError
	if errors.As(err, &large) {
		return int(kafka.MessageSizeTooLarge), true
	}
	return 0, false
}

func segmentioProduce(topic string, from, until int, value string, set func(*kafka.Writer)) (any, error) {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	writer := &kafka.Writer{Addr: kafka.TCP(bootstrap...), Topic: topic, RequiredAcks: kafka.RequireAll,
		BatchTimeout: 10 * time.Millisecond, Balancer: &kafka.RoundRobin{}, MaxAttempts: 2}
	set(writer)
	defer writer.Close()
	messages := []kafka.Message{}
	for number := from; number < until; number++ {
		text := value
		if text == "" {
			text = strconv.Itoa(number)
		}
		messages = append(messages, kafka.Message{Key: []byte("k"), Value: []byte(text)})
	}
	return nil, writer.WriteMessages(ctx, messages...)
}

func segmentioRead(config kafka.ReaderConfig, wanted int, commit bool) (any, error) {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	config.Brokers, config.MaxWait = bootstrap, 100*time.Millisecond
	reader := kafka.NewReader(config)
	defer reader.Close()
	found := map[string]bool{}
	for len(found) < wanted {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			return nil, err
		}
		found[strconv.Itoa(message.Partition)+"/"+strconv.FormatInt(message.Offset, 10)] = true
		if commit {
			if err := reader.CommitMessages(ctx, message); err != nil {
				return nil, err
			}
		}
	}
	return len(found), nil
}

func segmentio(phase string) {
	ctx := context.Background()
	client := &kafka.Client{Addr: kafka.TCP(bootstrap...), Timeout: 30 * time.Second}
	plain := func(*kafka.Writer) {}
	if phase == "below" {
		for acks, required := range map[string]kafka.RequiredAcks{"all": kafka.RequireAll, "1": kafka.RequireOne} {
			tell("produce below min.insync.replicas, acks="+acks, func() (any, error) {
				return segmentioProduce(topic("strict"), 0, 1, "x", func(w *kafka.Writer) { w.RequiredAcks, w.MaxAttempts = required, 1 })
			})
		}
		return
	}
	ways := []struct {
		name string
		set  func(*kafka.Writer)
	}{
		{"acks=0", func(w *kafka.Writer) { w.RequiredAcks = kafka.RequireNone }},
		{"acks=1", func(w *kafka.Writer) { w.RequiredAcks = kafka.RequireOne }},
		{"acks=all", plain},
		{"gzip", func(w *kafka.Writer) { w.Compression = kafka.Gzip }},
		{"snappy", func(w *kafka.Writer) { w.Compression = kafka.Snappy }},
		{"lz4", func(w *kafka.Writer) { w.Compression = kafka.Lz4 }},
		{"zstd", func(w *kafka.Writer) { w.Compression = kafka.Zstd }},
	}
	for _, way := range ways {
		tell("produce, "+way.name, func() (any, error) { return segmentioProduce(topic("one"), 0, records, "", way.set) })
	}
	tell("consume by assignment", func() (any, error) {
		return segmentioRead(kafka.ReaderConfig{Topic: topic("one")}, records*len(ways), false)
	})
	tell("produce a record that is too large", func() (any, error) {
		return segmentioProduce(topic("small"), 0, 1, strings.Repeat("x", 9000), plain)
	})
	tell("produce to an unknown topic", func() (any, error) { return segmentioProduce(topic("none"), 0, 1, "x", plain) })
	tell("fill a topic", func() (any, error) { return segmentioProduce(topic("four"), 0, records, "", plain) })
	group := kafka.ReaderConfig{GroupID: topic("classic"), Topic: topic("four"), StartOffset: kafka.FirstOffset}
	tell("group, classic", func() (any, error) { return segmentioRead(group, records, true) })
	tell("fill a topic again", func() (any, error) { return segmentioProduce(topic("four"), 0, more, "", plain) })
	tell("group, classic, once more", func() (any, error) { return segmentioRead(group, more, true) })
	tell("offsets of a group", func() (any, error) {
		found, err := client.ConsumerOffsets(ctx, kafka.TopicAndGroup{Topic: topic("four"), GroupId: topic("classic")})
		total := int64(0)
		for _, each := range found {
			total += each
		}
		return total, err
	})
	tell("metadata", func() (any, error) {
		found, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic("four"), topic("none")}})
		if err != nil {
			return nil, err
		}
		return []any{len(found.Brokers), len(found.Topics[0].Partitions), outcome(found.Topics[1].Error)}, nil
	})
	create := func(name string, count, replicas int) func() (any, error) {
		return func() (any, error) {
			wanted := kafka.TopicConfig{Topic: name, NumPartitions: count, ReplicationFactor: replicas}
			found, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{wanted}})
			if err != nil {
				return nil, err
			}
			return outcome(found.Errors[name]), nil
		}
	}
	tell("create a topic", create(topic("admin"), 2, 3))
	tell("create a topic again", create(topic("admin"), 2, 3))
	tell("create with too many replicas", create(topic("other"), 1, 4))
	tell("list offsets", func() (any, error) {
		wanted := map[string][]kafka.OffsetRequest{topic("one"): {kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0)}}
		found, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: wanted})
		if err != nil {
			return nil, err
		}
		each := found.Topics[topic("one")][0]
		return []any{each.FirstOffset, each.LastOffset, outcome(each.Error)}, nil
	})
	for _, each := range []struct{ what, name string }{{"delete a topic", "admin"}, {"delete an unknown topic", "none"}} {
		tell(each.what, func() (any, error) {
			found, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic(each.name)}})
			if err != nil {
				return nil, err
			}
			return outcome(found.Errors[topic(each.name)]), nil
		})
	}
}
