//go:build franz

package main

import (
	"context"
	"errors"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func init() { play, code = franz, franzCode }

func franzCode(err error) (int, bool) {
	var known *kerr.Error
	if errors.As(err, &known) {
		return int(known.Code), true
	}
	return 0, false
}

func franzClient(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap...)}, options...)...)
	if err != nil {
		panic(err)
	}
	return client
}

func franzProduce(topic string, from, until, spread int, key []byte, value string, options ...kgo.Opt) (any, error) {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	own := []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(2)}
	client := franzClient(append(own, options...)...)
	defer client.Close()
	var lock sync.Mutex
	told := []any{}
	for number := from; number < until; number++ {
		text := value
		if text == "" {
			text = strconv.Itoa(number)
		}
		record := &kgo.Record{Topic: topic, Partition: int32(number % spread), Key: key, Value: []byte(text)}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			lock.Lock()
			defer lock.Unlock()
			told = append(told, outcome(err))
		})
	}
	return told, client.Flush(ctx)
}

func franzRead(members []*kgo.Client, done func(map[int]bool) bool) (map[int]bool, error) {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	found := map[int]bool{}
	for !done(found) {
		for _, member := range members {
			short, end := context.WithTimeout(ctx, 200*time.Millisecond)
			fetches := member.PollFetches(short)
			end()
			for _, failed := range fetches.Errors() {
				if !errors.Is(failed.Err, context.DeadlineExceeded) {
					return nil, failed.Err
				}
			}
			fetches.EachRecord(func(record *kgo.Record) {
				number, _ := strconv.Atoi(string(record.Value))
				found[number] = true
			})
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return found, nil
}

func franzData() {
	key := []byte("k")
	plain := kgo.DisableIdempotentWrite()
	ways := []struct {
		name    string
		options []kgo.Opt
	}{
		{"acks=0", []kgo.Opt{kgo.RequiredAcks(kgo.NoAck()), plain}},
		{"acks=1", []kgo.Opt{kgo.RequiredAcks(kgo.LeaderAck()), plain}},
		{"acks=all", []kgo.Opt{plain}},
		{"idempotent", nil},
		{"gzip", []kgo.Opt{kgo.ProducerBatchCompression(kgo.GzipCompression())}},
		{"snappy", []kgo.Opt{kgo.ProducerBatchCompression(kgo.SnappyCompression())}},
		{"lz4", []kgo.Opt{kgo.ProducerBatchCompression(kgo.Lz4Compression())}},
		{"zstd", []kgo.Opt{kgo.ProducerBatchCompression(kgo.ZstdCompression())}},
	}
	for _, way := range ways {
		tell("produce, "+way.name, func() (any, error) {
			return franzProduce(topic("one"), 0, records, 1, key, "", way.options...)
		})
	}
	at := func(topic string, offset kgo.Offset) kgo.Opt {
		return kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: offset}})
	}
	tell("consume by assignment", func() (any, error) {
		client := franzClient(at(topic("one"), kgo.NewOffset().AtStart()))
		defer client.Close()
		ctx, stop := context.WithTimeout(context.Background(), patience)
		defer stop()
		count := 0
		for count < records*len(ways) {
			fetches := client.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				return nil, err
			}
			count += fetches.NumRecords()
		}
		return count, nil
	})
	tell("produce a record that is too large", func() (any, error) {
		return franzProduce(topic("small"), 0, 1, 1, key, strings.Repeat("x", 9000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	})
	tell("produce without a key to a compacted topic", func() (any, error) {
		return franzProduce(topic("compacted"), 0, 1, 1, nil, "x")
	})
	tell("produce to an unknown topic", func() (any, error) {
		return franzProduce(topic("none"), 0, 1, 1, key, "x")
	})
	tell("consume out of range", func() (any, error) {
		client := franzClient(at(topic("one"), kgo.NewOffset().At(10_000)), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
		defer client.Close()
		_, err := franzRead([]*kgo.Client{client}, func(map[int]bool) bool { return false })
		return nil, err
	})
}

type assigned struct {
	lock  sync.Mutex
	count int
}

func (a *assigned) add(count int) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
		a.lock.Lock()
		defer a.lock.Unlock()
		for _, each := range given {
			a.count += count * len(each)
		}
	}
}

func (a *assigned) owned() int {
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.count
}

// Two members share the topic, commit and close; a third is given what nobody has read.
func franzGroup(admin *kadm.Client, kind string, options func(name string) []kgo.Opt) (any, error) {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	name, group := topic("four")+"-"+kind, topic(kind)
	if _, err := admin.CreateTopic(ctx, partitions, 3, nil, name); err != nil {
		return nil, err
	}
	if _, err := franzProduce(name, 0, records, partitions, nil, ""); err != nil {
		return nil, err
	}
	member := func(id string, owned *assigned) *kgo.Client {
		own := []kgo.Opt{kgo.HeartbeatInterval(500 * time.Millisecond), kgo.ConsumerGroup(group), kgo.ConsumeTopics(name), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.OnPartitionsAssigned(owned.add(1)),
			kgo.OnPartitionsRevoked(owned.add(-1)), kgo.OnPartitionsLost(owned.add(-1))}
		return franzClient(append(own, options(id)...)...)
	}
	counts := []*assigned{{}, {}}
	both := []*kgo.Client{member("a", counts[0]), member("b", counts[1])}
	first, err := franzRead(both, func(found map[int]bool) bool {
		// What a member read of a partition before the other one got it is not committed.
		read := 0
		for _, each := range both {
			for _, offsets := range each.UncommittedOffsets() {
				for _, next := range offsets {
					if next.Offset == int64(records/partitions) {
						read++
					}
				}
			}
		}
		return len(found) == records && read == partitions &&
			counts[0].owned() == partitions/2 && counts[1].owned() == partitions/2
	})
	if err != nil {
		return nil, err
	}
	for _, each := range both {
		if err := each.CommitUncommittedOffsets(ctx); err != nil {
			return nil, err
		}
	}
	committed, err := franzOffsets(ctx, admin, group)
	if err != nil {
		return nil, err
	}
	for _, each := range both {
		each.Close()
	}
	if _, err := franzProduce(name, records, records+more, partitions, nil, ""); err != nil {
		return nil, err
	}
	third := member("a", &assigned{})
	defer third.Close()
	then, err := franzRead([]*kgo.Client{third}, func(found map[int]bool) bool { return len(found) == more })
	if err != nil {
		return nil, err
	}
	numbers := []int{}
	for number := range then {
		numbers = append(numbers, number)
	}
	sort.Ints(numbers)
	return map[string]any{"read": len(first), "committed": committed, "then": numbers}, nil
}

func franzOffsets(ctx context.Context, admin *kadm.Client, group string) (any, error) {
	found, err := admin.FetchOffsets(ctx, group)
	told := []int64{}
	for _, each := range found.Sorted() {
		told = append(told, each.At)
	}
	return told, err
}

func franzGroups(admin *kadm.Client) {
	kinds := map[string]func(name string) []kgo.Opt{
		"classic":     func(string) []kgo.Opt { return []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())} },
		"cooperative": func(string) []kgo.Opt { return []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer())} },
		"static": func(name string) []kgo.Opt {
			return []kgo.Opt{kgo.InstanceID(name), kgo.Balancers(kgo.RangeBalancer())}
		},
		"consumer": func(string) []kgo.Opt {
			opted := context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true) //nolint:staticcheck
			return []kgo.Opt{kgo.WithContext(opted)}
		},
	}
	for _, kind := range []string{"classic", "cooperative", "static", "consumer"} {
		tell("group, "+kind, func() (any, error) { return franzGroup(admin, kind, kinds[kind]) })
	}
}

func franzGroupAdministration(ctx context.Context, admin *kadm.Client) {
	group, unknown := topic("classic"), topic("nobody")
	described := func(name string) func() (any, error) {
		return func() (any, error) {
			found, err := admin.DescribeGroups(ctx, name)
			if err == nil {
				err = found[name].Err
			}
			return []any{found[name].State, found[name].Protocol, len(found[name].Members)}, err
		}
	}
	offsets := func(name string) func() (any, error) {
		return func() (any, error) { return franzOffsets(ctx, admin, name) }
	}
	commit := func(partition int32) func() (any, error) {
		return func() (any, error) {
			wanted := kadm.Offsets{}
			wanted.AddOffset(topic("four")+"-classic", partition, 3, -1)
			found, err := admin.CommitOffsets(ctx, group, wanted)
			if err == nil {
				err = found.Error()
			}
			return nil, err
		}
	}
	tell("produce to an internal topic", func() (any, error) {
		return franzProduce("__consumer_offsets", 0, 1, 1, []byte("k"), "x")
	})
	tell("list groups", func() (any, error) {
		found, err := admin.ListGroups(ctx)
		told := []string{}
		for _, each := range found.Sorted() {
			if strings.HasPrefix(each.Group, prefix+"-") {
				told = append(told, strings.TrimPrefix(each.Group, prefix)+" "+each.State+" "+each.ProtocolType)
			}
		}
		return told, err
	})
	tell("describe a group", described(group))
	tell("describe an unknown group", described(unknown))
	tell("offsets of a group", offsets(group))
	tell("offsets of an unknown group", offsets(unknown))
	tell("alter offsets of a group", commit(0))
	tell("alter offsets of an unknown partition", commit(99))
	tell("offsets of a group after that", offsets(group))
	tell("lag of a group", func() (any, error) {
		found, err := admin.Lag(ctx, group)
		return found[group].Lag.Total(), err
	})
	for what, name := range map[string]string{"delete a group": group, "delete an unknown group": unknown} {
		tell(what, func() (any, error) { _, err := admin.DeleteGroup(ctx, name); return done(err) })
	}
}

func franzAdministration(ctx context.Context, admin *kadm.Client) {
	name, other, four := topic("admin"), topic("other"), topic("four")
	text := func(value string) *string { return &value }
	create := func(count int32, replicas int16, configs map[string]*string, name string) func() (any, error) {
		return func() (any, error) {
			_, err := admin.CreateTopic(ctx, count, replicas, configs, name)
			return done(err)
		}
	}
	tell("create a topic", create(2, 3, map[string]*string{"retention.ms": text("100000")}, name))
	tell("create a topic again", create(2, 3, nil, name))
	tell("create with a name that cannot be", create(1, 1, nil, "no good"))
	tell("create with too many replicas", create(1, 4, nil, other))
	tell("create without partitions", create(0, 1, nil, other))
	tell("create with an unknown config", create(1, 1, map[string]*string{"no.such": text("1")}, other))
	tell("create with a value that is no number", create(1, 1, map[string]*string{"retention.ms": text("soon")}, other))
	tell("metadata", func() (any, error) {
		found, err := admin.Metadata(ctx, name)
		return []int{len(found.Brokers), len(found.Topics[name].Partitions)}, err
	})
	for what, count := range map[string]int{"add partitions": 3, "take partitions away": 1} {
		tell(what, func() (any, error) {
			found, err := admin.UpdatePartitions(ctx, count, name)
			if err == nil {
				err = found[name].Err
			}
			return done(err)
		})
	}
	alter := func(name, config, value string) func() (any, error) {
		return func() (any, error) {
			found, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: config, Value: &value}}, name)
			if err == nil {
				err = found[0].Err
			}
			return done(err)
		}
	}
	tell("set a config", alter(name, "retention.ms", "200000"))
	tell("set an unknown config", alter(name, "no.such", "1"))
	tell("set a config of an unknown topic", alter(other, "retention.ms", "1"))
	tell("describe configs", func() (any, error) {
		return eventually(func() (map[string]string, error) {
			found, err := admin.DescribeTopicConfigs(ctx, name)
			told := map[string]string{}
			for _, each := range found[0].Configs {
				if each.Key == "retention.ms" || each.Key == "min.insync.replicas" {
					told[each.Key] = *each.Value
				}
			}
			return told, err
		}, func(told map[string]string) bool { return told["retention.ms"] == "200000" })
	})
	list := func(ask func(context.Context, ...string) (kadm.ListedOffsets, error), name string) func() (any, error) {
		return func() (any, error) {
			found, err := ask(ctx, name)
			told := []any{}
			for _, each := range found.Offsets().Sorted() {
				told = append(told, each.At)
			}
			if err == nil {
				err = found.Error()
			}
			return told, err
		}
	}
	one := topic("one")
	tell("list offsets, earliest", list(admin.ListStartOffsets, one))
	tell("list offsets, latest", list(admin.ListEndOffsets, one))
	tell("list offsets of an unknown topic", list(admin.ListEndOffsets, topic("none")))
	tell("offset of a leader epoch", func() (any, error) {
		var wanted kadm.OffsetForLeaderEpochRequest
		wanted.Add(one, 0, 0)
		found, err := admin.OffsetForLeaderEpoch(ctx, wanted)
		return []any{found[one][0].EndOffset, outcome(found[one][0].Err)}, err
	})
	cut := func(name string, partition int32, offset int64) func() (any, error) {
		return func() (any, error) {
			wanted := kadm.Offsets{}
			wanted.AddOffset(name, partition, offset, -1)
			found, err := admin.DeleteRecords(ctx, wanted)
			if err == nil {
				err = found.Error()
			}
			return nil, err
		}
	}
	tell("delete records", cut(four, 0, 0))
	tell("delete records beyond the end", cut(four, 0, 1_000_000))
	tell("log directories", func() (any, error) {
		found, err := admin.DescribeAllLogDirs(ctx, nil)
		return len(found), err
	})
	tell("list reassignments", func() (any, error) {
		found, err := admin.ListPartitionReassignments(ctx, nil)
		return len(found), err
	})
	tell("elect", func() (any, error) {
		var wanted kadm.TopicsSet
		wanted.Add(one, 0)
		found, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, wanted)
		return outcome(found[one][0].Err), err
	})
	for _, each := range []struct{ what, name string }{{"delete a topic", name}, {"delete an unknown topic", other}} {
		tell(each.what, func() (any, error) { _, err := admin.DeleteTopic(ctx, each.name); return done(err) })
	}
}

func franz(phase string) {
	if phase == "below" {
		for acks, required := range map[string]kgo.Acks{"all": kgo.AllISRAcks(), "1": kgo.LeaderAck()} {
			tell("produce below min.insync.replicas, acks="+acks, func() (any, error) {
				return franzProduce(topic("strict"), 0, 1, 1, nil, "x", kgo.RequiredAcks(required),
					kgo.DisableIdempotentWrite(), kgo.RecordRetries(1))
			})
		}
		return
	}
	ctx := context.Background()
	client := franzClient()
	defer client.Close()
	admin := kadm.NewClient(client)
	franzData()
	franzGroups(admin)
	franzGroupAdministration(ctx, admin)
	franzAdministration(ctx, admin)
}
