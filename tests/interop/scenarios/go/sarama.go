//go:build sarama

package main

import (
	"context"
	"errors"
	"io"
	"log"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

func init() { play, code = saramas, saramaCode }

func saramaCode(err error) (int, bool) {
	var known sarama.KError
	if errors.As(err, &known) {
		return int(known), true
	}
	return 0, false
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Return.Errors = true
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	return config
}

func saramaProduce(topic string, from, until, spread int, key, value sarama.Encoder, set func(*sarama.Config)) (any, error) {
	config := saramaConfig()
	set(config)
	producer, err := sarama.NewSyncProducer(bootstrap, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	told := []any{}
	for number := from; number < until; number++ {
		message := &sarama.ProducerMessage{Topic: topic, Partition: int32(number % spread), Key: key, Value: value}
		if value == nil {
			message.Value = sarama.StringEncoder(strconv.Itoa(number))
		}
		_, _, err := producer.SendMessage(message)
		told = append(told, outcome(err))
	}
	return told, nil
}

func saramaData() {
	key := sarama.StringEncoder("k")
	ways := []struct {
		name string
		set  func(*sarama.Config)
	}{
		{"acks=0", func(c *sarama.Config) { c.Producer.RequiredAcks = sarama.NoResponse }},
		{"acks=1", func(c *sarama.Config) { c.Producer.RequiredAcks = sarama.WaitForLocal }},
		{"acks=all", func(*sarama.Config) {}},
		{"idempotent", func(c *sarama.Config) { c.Producer.Idempotent, c.Net.MaxOpenRequests = true, 1 }},
		{"gzip", func(c *sarama.Config) { c.Producer.Compression = sarama.CompressionGZIP }},
		{"snappy", func(c *sarama.Config) { c.Producer.Compression = sarama.CompressionSnappy }},
		{"lz4", func(c *sarama.Config) { c.Producer.Compression = sarama.CompressionLZ4 }},
		{"zstd", func(c *sarama.Config) { c.Producer.Compression = sarama.CompressionZSTD }},
		{"the oldest protocol of records", func(c *sarama.Config) { c.Version = sarama.V0_11_0_0 }},
	}
	for _, way := range ways {
		tell("produce, "+way.name, func() (any, error) {
			return saramaProduce(topic("one"), 0, records, 1, key, nil, way.set)
		})
	}
	read := func(offset int64, wanted int) func() (any, error) {
		return func() (any, error) {
			consumer, err := sarama.NewConsumer(bootstrap, saramaConfig())
			if err != nil {
				return nil, err
			}
			defer consumer.Close()
			partition, err := consumer.ConsumePartition(topic("one"), 0, offset)
			if err != nil {
				return nil, err
			}
			defer partition.Close()
			for count := 0; count < wanted; count++ {
				select {
				case <-partition.Messages():
				case failed := <-partition.Errors():
					return nil, failed.Err
				case <-time.After(patience):
					return count, nil
				}
			}
			return wanted, nil
		}
	}
	plain := func(*sarama.Config) {}
	once := func(c *sarama.Config) { c.Producer.Retry.Max, c.Metadata.Retry.Max = 0, 1 }
	tell("consume by assignment", read(sarama.OffsetOldest, records*len(ways)))
	tell("consume out of range", read(10_000, 1))
	large := sarama.StringEncoder(strings.Repeat("x", 9000))
	text := sarama.StringEncoder("x")
	tell("produce a record that is too large", func() (any, error) { return saramaProduce(topic("small"), 0, 1, 1, key, large, plain) })
	tell("produce without a key to a compacted topic", func() (any, error) { return saramaProduce(topic("compacted"), 0, 1, 1, nil, text, once) })
	tell("produce to an unknown topic", func() (any, error) { return saramaProduce(topic("none"), 0, 1, 1, key, text, once) })
}

// saramaMember hands records to the channel of all members, and tells how many partitions it has.
type saramaMember struct {
	found chan<- int
	lock  sync.Mutex
	owned int
	stop  context.CancelFunc
	done  chan error
}

func (m *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.owned = 0
	for _, each := range session.Claims() {
		m.owned += len(each)
	}
	return nil
}

func (m *saramaMember) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (m *saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			number, _ := strconv.Atoi(string(message.Value))
			session.MarkMessage(message, "")
			m.found <- number
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *saramaMember) count() int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.owned
}

func saramaJoin(group, name string, found chan<- int, config *sarama.Config) (*saramaMember, error) {
	client, err := sarama.NewConsumerGroup(bootstrap, group, config)
	if err != nil {
		return nil, err
	}
	go func() {
		for range client.Errors() { //nolint:revive
		}
	}()
	ctx, stop := context.WithCancel(context.Background())
	member := &saramaMember{found: found, stop: stop, done: make(chan error, 1)}
	go func() {
		for ctx.Err() == nil {
			if err := client.Consume(ctx, []string{name}, member); err != nil {
				member.done <- err
				return
			}
		}
		member.done <- client.Close()
	}()
	return member, nil
}

// Two members share the topic, commit and close; a third is given what nobody has read.
func saramaGroup(admin sarama.ClusterAdmin, kind string, set func(c *sarama.Config, name string)) (any, error) {
	name, group := topic("four")+"-"+kind, topic(kind)
	if err := admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 3}, false); err != nil {
		return nil, err
	}
	plain := func(*sarama.Config) {}
	if _, err := saramaProduce(name, 0, records, partitions, nil, nil, plain); err != nil {
		return nil, err
	}
	join := func(id string, found chan<- int) (*saramaMember, error) {
		config := saramaConfig()
		set(config, id)
		return saramaJoin(group, name, found, config)
	}
	found := make(chan int, 1000)
	read := func(done func(map[int]bool) bool) (map[int]bool, error) {
		seen, end := map[int]bool{}, time.After(patience)
		for !done(seen) {
			select {
			case number := <-found:
				seen[number] = true
			case <-time.After(50 * time.Millisecond):
			case <-end:
				return seen, errors.New("not read in time")
			}
		}
		return seen, nil
	}
	first, err := join("a", found)
	if err != nil {
		return nil, err
	}
	second, err := join("b", found)
	if err != nil {
		return nil, err
	}
	seen, err := read(func(seen map[int]bool) bool {
		return len(seen) == records && first.count() == partitions/2 && second.count() == partitions/2
	})
	if err != nil {
		return nil, err
	}
	for _, member := range []*saramaMember{first, second} {
		member.stop()
		if err := <-member.done; err != nil {
			return nil, err
		}
	}
	committed, err := saramaOffsets(admin, kind, group)
	if err != nil {
		return nil, err
	}
	if _, err := saramaProduce(name, records, records+more, partitions, nil, nil, plain); err != nil {
		return nil, err
	}
	third, err := join("a", found)
	if err != nil {
		return nil, err
	}
	then, err := read(func(seen map[int]bool) bool { return len(seen) == more })
	third.stop()
	<-third.done
	numbers := []int{}
	for number := range then {
		numbers = append(numbers, number)
	}
	sort.Ints(numbers)
	return map[string]any{"read": len(seen), "committed": committed, "then": numbers}, err
}

func saramaOffsets(admin sarama.ClusterAdmin, kind, group string) (any, error) {
	name := topic("four") + "-" + kind
	wanted := map[string][]int32{name: {0, 1, 2, 3}}
	found, err := admin.ListConsumerGroupOffsets(group, wanted)
	if err != nil {
		return nil, err
	}
	told := []int64{}
	for partition := range int32(partitions) {
		told = append(told, found.GetBlock(name, partition).Offset)
	}
	return told, nil
}

func saramaGroups(admin sarama.ClusterAdmin) {
	kinds := map[string]func(c *sarama.Config, name string){
		"classic": func(*sarama.Config, string) {},
		"round robin": func(c *sarama.Config, _ string) {
			c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRoundRobin()}
		},
		"sticky": func(c *sarama.Config, _ string) {
			c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}
		},
		"static": func(c *sarama.Config, name string) { c.Consumer.Group.InstanceId = name },
	}
	for _, kind := range []string{"classic", "round robin", "sticky", "static"} {
		tell("group, "+kind, func() (any, error) {
			return saramaGroup(admin, strings.ReplaceAll(kind, " ", "-"), kinds[kind])
		})
	}
	group, unknown := topic("classic"), topic("nobody")
	tell("list groups", func() (any, error) {
		found, err := admin.ListConsumerGroups()
		told := []string{}
		for name, protocol := range found {
			if strings.HasPrefix(name, prefix+"-") {
				told = append(told, strings.TrimPrefix(name, prefix)+" "+protocol)
			}
		}
		sort.Strings(told)
		return told, err
	})
	for what, name := range map[string]string{"describe a group": group, "describe an unknown group": unknown} {
		tell(what, func() (any, error) {
			found, err := admin.DescribeConsumerGroups([]string{name})
			if err != nil {
				return nil, err
			}
			return []any{found[0].State, found[0].Protocol, outcome(found[0].Err)}, nil
		})
	}
	tell("offsets of a group", func() (any, error) { return saramaOffsets(admin, "classic", group) })
	tell("offsets of an unknown group", func() (any, error) { return saramaOffsets(admin, "classic", unknown) })
	tell("delete offsets", func() (any, error) { return done(admin.DeleteConsumerGroupOffset(group, topic("four")+"-classic", 0)) })
	tell("delete a group", func() (any, error) { return done(admin.DeleteConsumerGroup(group)) })
	tell("delete an unknown group", func() (any, error) { return done(admin.DeleteConsumerGroup(unknown)) })
}

func saramaAdministration(admin sarama.ClusterAdmin) {
	name, other := topic("admin"), topic("other")
	value := func(text string) *string { return &text }
	create := func(name string, count int32, replicas int16, configs map[string]*string) func() (any, error) {
		return func() (any, error) {
			return done(admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: count, ReplicationFactor: replicas, ConfigEntries: configs}, false))
		}
	}
	tell("create a topic", create(name, 2, 3, map[string]*string{"retention.ms": value("100000")}))
	tell("create a topic again", create(name, 2, 3, nil))
	tell("create with a name that cannot be", create("no good", 1, 1, nil))
	tell("create with too many replicas", create(other, 1, 4, nil))
	tell("create without partitions", create(other, 0, 1, nil))
	tell("create with an unknown config", create(other, 1, 1, map[string]*string{"no.such": value("1")}))
	tell("describe the cluster", func() (any, error) { found, _, err := admin.DescribeCluster(); return len(found), err })
	tell("list topics", func() (any, error) {
		found, err := admin.ListTopics()
		return []any{found[name].NumPartitions, found[name].ReplicationFactor}, err
	})
	tell("describe topics", func() (any, error) {
		found, err := admin.DescribeTopics([]string{name, other})
		told := []any{}
		for _, each := range found {
			told = append(told, []any{outcome(each.Err), len(each.Partitions)})
		}
		return told, err
	})
	for _, each := range []struct {
		what  string
		count int32
	}{{"add partitions", 3}, {"take partitions away", 1}} {
		tell(each.what, func() (any, error) { return done(admin.CreatePartitions(name, each.count, nil, false)) })
	}
	set := sarama.IncrementalAlterConfigsOperationSet
	tell("alter configs as before KIP-339", func() (any, error) {
		return done(admin.AlterConfig(sarama.TopicResource, name, map[string]*string{"retention.ms": value("200000")}, false))
	})
	for what, config := range map[string]string{"set a config": "retention.ms", "set an unknown config": "no.such"} {
		tell(what, func() (any, error) {
			wanted := map[string]sarama.IncrementalAlterConfigsEntry{config: {Operation: set, Value: value("300000")}}
			return done(admin.IncrementalAlterConfig(sarama.TopicResource, name, wanted, false))
		})
	}
	tell("describe configs", func() (any, error) {
		return eventually(func() (map[string]string, error) {
			found, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: name})
			told := map[string]string{}
			for _, each := range found {
				if each.Name == "retention.ms" || each.Name == "min.insync.replicas" {
					told[each.Name] = each.Value
				}
			}
			return told, err
		}, func(told map[string]string) bool { return told["retention.ms"] == "300000" })
	})
	one, four := topic("one"), topic("four")
	tell("delete records", func() (any, error) { return done(admin.DeleteRecords(one, map[int32]int64{0: 5})) })
	tell("delete records beyond the end", func() (any, error) { return done(admin.DeleteRecords(four, map[int32]int64{0: 1_000_000})) })
	tell("elect", func() (any, error) {
		found, err := admin.ElectLeaders(sarama.PreferredElection, map[string][]int32{one: {0}})
		if err != nil {
			return nil, err
		}
		return outcome(found[one][0].ErrorCode), nil
	})
	tell("reassign", func() (any, error) {
		return done(admin.AlterPartitionReassignments(name, [][]int32{{1, 2}, {2, 3}, {1, 3}}))
	})
	tell("reassign to an unknown broker", func() (any, error) {
		return done(admin.AlterPartitionReassignments(name, [][]int32{{9}, {2, 3}, {1, 3}}))
	})
	tell("list reassignments", func() (any, error) {
		_, err := admin.ListPartitionReassignments(name, []int32{0, 1, 2})
		return done(err)
	})
	tell("log directories", func() (any, error) { found, err := admin.DescribeLogDirs([]int32{1, 2, 3}); return len(found), err })
	tell("describe credentials of an unknown user", func() (any, error) {
		found, err := admin.DescribeUserScramCredentials([]string{"nobody"})
		if err != nil {
			return nil, err
		}
		return outcome(found[0].ErrorCode), nil
	})
	tell("delete a topic", func() (any, error) { return done(admin.DeleteTopic(name)) })
	tell("delete an unknown topic", func() (any, error) { return done(admin.DeleteTopic(other)) })
}

func saramas(phase string) {
	sarama.Logger = log.New(io.Discard, "", 0)
	if phase == "below" {
		for acks, required := range map[string]sarama.RequiredAcks{"all": sarama.WaitForAll, "1": sarama.WaitForLocal} {
			tell("produce below min.insync.replicas, acks="+acks, func() (any, error) {
				return saramaProduce(topic("strict"), 0, 1, 1, nil, sarama.StringEncoder("x"), func(c *sarama.Config) {
					c.Producer.RequiredAcks, c.Producer.Retry.Max = required, 0
				})
			})
		}
		return
	}
	admin, err := sarama.NewClusterAdmin(bootstrap, saramaConfig())
	if err != nil {
		panic(err)
	}
	defer admin.Close()
	saramaData()
	saramaGroups(admin)
	saramaAdministration(admin)
}
