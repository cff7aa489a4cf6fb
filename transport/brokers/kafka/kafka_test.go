package kafka_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/transport/brokers/kafka"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

const (
	topic    = "orders"
	group    = "inbox"
	patience = 30 * time.Second
)

// A mock of sarama's, over a real socket: what it proves is how Watermill's subscriber
// and this client ask and commit, not how a Kafka cluster answers.
func mockBroker(t *testing.T, values ...string) *sarama.MockBroker {
	broker := sarama.NewMockBroker(t, 1)
	t.Cleanup(broker.Close)
	fetch := sarama.NewMockFetchResponse(t, 1)
	for i, value := range values {
		fetch.SetMessageWithKey(topic, 0, int64(i), sarama.StringEncoder("key"), sarama.StringEncoder(value))
	}
	fetch.SetHighWaterMark(topic, 0, int64(len(values)))
	broker.SetHandlerByMap(map[string]sarama.MockResponse{
		"MetadataRequest": sarama.NewMockMetadataResponse(t).
			SetBroker(broker.Addr(), broker.BrokerID()).SetLeader(topic, 0, broker.BrokerID()).SetController(broker.BrokerID()),
		"OffsetRequest": sarama.NewMockOffsetResponse(t).
			SetOffset(topic, 0, sarama.OffsetOldest, 0).SetOffset(topic, 0, sarama.OffsetNewest, int64(len(values))),
		"FindCoordinatorRequest": sarama.NewMockFindCoordinatorResponse(t).SetCoordinator(sarama.CoordinatorGroup, group, broker),
		"JoinGroupRequest":       sarama.NewMockJoinGroupResponse(t).SetGroupProtocol(sarama.RangeBalanceStrategyName),
		"SyncGroupRequest": sarama.NewMockSyncGroupResponse(t).
			SetMemberAssignment(&sarama.ConsumerGroupMemberAssignment{Topics: map[string][]int32{topic: {0}}}),
		"OffsetFetchRequest":  sarama.NewMockOffsetFetchResponse(t).SetOffset(group, topic, 0, 0, "", sarama.ErrNoError).SetError(sarama.ErrNoError),
		"HeartbeatRequest":    sarama.NewMockHeartbeatResponse(t),
		"OffsetCommitRequest": sarama.NewMockOffsetCommitResponse(t),
		"LeaveGroupRequest":   sarama.NewMockLeaveGroupResponse(t),
		"FetchRequest":        fetch,
	})
	return broker
}

// committed is the highest offset that the group has committed, 0 for none.
func committed(broker *sarama.MockBroker) (highest int64) {
	for _, exchange := range broker.History() {
		if request, ok := exchange.Request.(*sarama.OffsetCommitRequest); ok {
			if offset, _, err := request.Offset(topic, 0); err == nil {
				highest = max(highest, offset)
			}
		}
	}
	return highest
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// store is an Accepter that keeps ids and refuses one payload while away is set.
type store struct {
	mu   sync.Mutex
	ids  []string
	away atomic.Bool
}

func (s *store) Accept(_ context.Context, entries []inbox.Entry) ([]inbox.Outcome, error) {
	if s.away.Load() && string(entries[0].Message.(inbox.Raw).Payload) == "two" {
		return nil, errors.New("connection refused")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = append(s.ids, entries[0].Source+" "+entries[0].MessageID)
	return []inbox.Outcome{{Kind: inbox.Stored}}, nil
}

func (s *store) stored() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.ids...)
}

func TestOffsetsAreCommittedOnlyBehindWhatIsStored(t *testing.T) {
	t.Parallel()
	broker := mockBroker(t, "one", "two", "three")
	config := wmkafka.DefaultSaramaSubscriberConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = 50 * time.Millisecond
	subscriber, err := wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
		Brokers: []string{broker.Addr()}, Unmarshaler: kafka.Unmarshaler{}, OverwriteSaramaConfig: config,
		ConsumerGroup: group, NackResendSleep: wmkafka.NoSleep,
	}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	s := &store{}
	s.away.Store(true)
	handle, err := wminbox.NewHandler(s, wminbox.Config{
		IDs:    []wminbox.IDExtractor{wminbox.UUID, wminbox.Position}, // the producer says nothing
		Names:  []wminbox.NameExtractor{wminbox.FixedName("order")},
		Reject: wminbox.Nack{},
	})
	if err != nil {
		t.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	var deliveries atomic.Int64
	router.AddConsumerHandler("inbox", topic, subscriber, func(msg *message.Message) error {
		deliveries.Add(1)
		return handle(msg)
	})
	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	<-router.Running()

	eventually(t, "the first message is committed", func() bool { return committed(broker) == 1 })
	eventually(t, "the second came again", func() bool { return deliveries.Load() >= 4 })
	if got := committed(broker); got != 1 {
		t.Errorf("offset %d is committed, though the second message is not stored", got)
	}
	s.away.Store(false)
	eventually(t, "all are committed", func() bool { return committed(broker) == 3 })
	if err := errors.Join(router.Close(), <-done); err != nil {
		t.Error(err)
	}
	ids := s.stored()
	if len(ids) != 3 {
		t.Fatalf("stored: %q", ids)
	}
	for i, prefix := range []string{"kafka:orders 0/0@", "kafka:orders 0/1@", "kafka:orders 0/2@"} {
		if ids[i][:len(prefix)] != prefix {
			t.Errorf("message %d has the id %q", i, ids[i])
		}
	}
}

func TestHeadersKeyAndPositionAreKept(t *testing.T) {
	t.Parallel()
	got, err := kafka.Unmarshaler{}.Unmarshal(&sarama.ConsumerMessage{
		Topic: topic, Partition: 3, Offset: 7, Timestamp: time.UnixMilli(9), Key: []byte("k"), Value: []byte("\x00\xff"),
		Headers: []*sarama.RecordHeader{
			{Key: []byte("ce_id"), Value: []byte("1")},
			nil,
			{Key: []byte("Letterbox-Position"), Value: []byte("forged")},
			{Key: []byte(wmkafka.UUIDHeaderKey), Value: []byte("u")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := message.Metadata{"ce_id": "1", kafka.KeyKey: "k", wminbox.PositionSourceKey: "kafka:orders", wminbox.PositionKey: "3/7@9"}
	if diff := cmp.Diff(want, got.Metadata); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	if got.UUID != "u" || string(got.Payload) != "\x00\xff" {
		t.Errorf("uuid %q, payload %q", got.UUID, got.Payload)
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte("ce_id"), []byte("1"), []byte("k"), []byte("{}"))
	f.Add([]byte("letterbox-position"), []byte("1"), []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, name, header, key, value []byte) {
		msg, err := kafka.Unmarshaler{}.Unmarshal(&sarama.ConsumerMessage{
			Topic: topic, Key: key, Value: value, Headers: []*sarama.RecordHeader{{Key: name, Value: header}},
		})
		if err != nil || string(msg.Payload) != string(value) || msg.Metadata[wminbox.PositionSourceKey] != "kafka:orders" {
			t.Errorf("%v %+v", err, msg)
		}
	})
}
