package main

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// retries consumes until so many attempts were made and answers ConsumeRetryLater to all of them.
func retries(r request) (answer, error) {
	var guard sync.Mutex
	attempts := []answer{}
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{r.Namesrv}),
		consumer.WithCredentials(r.credentials()),
		consumer.WithGroupName(r.Group),
		consumer.WithInstance(newName("retries")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithMaxReconsumeTimes(r.MaxReconsumeTimes),
	)
	if err != nil {
		return nil, err
	}
	take := func(
		_ context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		guard.Lock()
		defer guard.Unlock()
		for _, message := range messages {
			text, _, _ := strings.Cut(string(message.Body), "|")
			number, err := strconv.Atoi(text)
			if err != nil {
				return consumer.ConsumeSuccess, err
			}
			attempts = append(attempts, answer{
				"number": number, "topic": message.Topic, "reconsumeTimes": message.ReconsumeTimes,
				"storeTimestamp": message.StoreTimestamp, "properties": message.GetProperties(),
			})
		}
		return consumer.ConsumeRetryLater, nil
	}
	if err := c.Subscribe(r.Topic, consumer.MessageSelector{}, take); err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	made := func() int {
		guard.Lock()
		defer guard.Unlock()
		return len(attempts)
	}
	end := time.Now().Add(time.Duration(r.TimeoutMs) * time.Millisecond)
	for made() < r.Expected && time.Now().Before(end) {
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(time.Duration(r.QuietMs) * time.Millisecond)
	if err := c.Shutdown(); err != nil {
		return nil, err
	}
	guard.Lock()
	defer guard.Unlock()
	return answer{"attempts": attempts}, nil
}
