package main

import (
	"strings"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"

	"github.com/letterbox-go/letterbox/transport/brokers/kafka"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

func openKafka(topic, url string) (*broker, error) {
	addresses := strings.Split(url, ",")
	config := wmkafka.DefaultSaramaSubscriberConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	admin, err := sarama.NewClusterAdmin(addresses, config)
	if err != nil {
		return nil, err
	}
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false); err != nil {
		return nil, err
	}
	subscriber, err := wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
		Brokers: addresses, Unmarshaler: kafka.Unmarshaler{}, OverwriteSaramaConfig: config, ConsumerGroup: topic,
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	publisher, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{Brokers: addresses, Marshaler: kafka.Unmarshaler{}}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	producer, err := sarama.NewSyncProducer(addresses, wmkafka.DefaultSaramaSyncPublisherConfig())
	if err != nil {
		return nil, err
	}
	return &broker{
		name: "Kafka", topic: topic, publisher: publisher, subscriber: subscriber,
		ids: []wminbox.IDExtractor{wminbox.CloudEvents},
		sendForeign: func(messages []foreign) error {
			for _, m := range messages {
				_, _, err := producer.SendMessage(&sarama.ProducerMessage{
					Topic: topic, Key: sarama.StringEncoder(m.id), Value: sarama.StringEncoder(m.body),
					Headers: []sarama.RecordHeader{{Key: []byte("ce_id"), Value: []byte(m.id)}, {Key: []byte("ce_source"), Value: []byte("/shop")}},
				})
				if err != nil {
					return err
				}
			}
			return nil
		},
		close: closeAll(publisher.Close, subscriber.Close, producer.Close, func() error { return admin.DeleteTopic(topic) }, admin.Close),
	}, nil
}
