package main

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/letterbox-go/letterbox/transport/brokers/amqp"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

func openAMQP(topic, url string) (*broker, error) {
	connection, err := amqp091.Dial(url)
	if err != nil {
		return nil, err
	}
	channel, err := connection.Channel()
	if err != nil {
		return nil, err
	}
	if err := channel.Confirm(false); err != nil {
		return nil, err
	}
	if _, err := channel.QueueDeclare(topic, true, false, false, false, nil); err != nil {
		return nil, err
	}
	config := wmamqp.NewDurableQueueConfig(url)
	config.Marshaler = amqp.Marshaler{}
	config.Publish.ConfirmDelivery = true
	subscriber, err := wmamqp.NewSubscriber(config, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	publisher, err := wmamqp.NewPublisher(config, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	return &broker{
		name: "RabbitMQ", topic: topic, publisher: publisher, subscriber: subscriber,
		ids: []wminbox.IDExtractor{wminbox.AMQPMessageID},
		sendForeign: func(messages []foreign) error {
			for _, m := range messages {
				confirmed, err := channel.PublishWithDeferredConfirm("", topic, false, false, amqp091.Publishing{
					MessageId: m.id, Headers: amqp091.Table{"attempt": int32(1)}, Body: []byte(m.body), DeliveryMode: amqp091.Persistent,
				})
				if err != nil {
					return err
				}
				if _, err := confirmed.WaitContext(context.Background()); err != nil {
					return err
				}
			}
			return nil
		},
		close: closeAll(publisher.Close, subscriber.Close,
			func() error { _, err := channel.QueueDelete(topic, false, false, false); return err }, connection.Close),
	}, nil
}
