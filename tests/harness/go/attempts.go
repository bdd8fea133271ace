package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// sender is a producer that sends one message after the other through all failures.
type sender struct {
	producer rocketmq.Producer
	stop     chan struct{}
	done     sync.WaitGroup
	ended    [][]any
}

// startAttempts starts a producer with the client's defaults.
func startAttempts(senders map[string]*sender, r request) (answer, error) {
	p, err := rocketmq.NewProducer(
		producer.WithNameServer(strings.Split(r.Namesrv, ";")),
		producer.WithGroupName("attempts"),
		producer.WithInstanceName(newName("attempts")),
	)
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	s := &sender{producer: p, stop: make(chan struct{})}
	senders[r.ID] = s
	s.done.Add(1)
	go s.run(r)
	return answer{}, nil
}

// stopAttempts stops a producer: each attempt as [beganMs, endedMs, number, broker], in the order
// of the ends; the broker is empty if the message was not acknowledged.
func stopAttempts(senders map[string]*sender, r request) (answer, error) {
	s := senders[r.ID]
	delete(senders, r.ID)
	close(s.stop)
	s.done.Wait()
	return answer{"attempts": s.ended}, s.producer.Shutdown()
}

func (s *sender) run(r request) {
	defer s.done.Done()
	for number := 0; ; number++ {
		select {
		case <-s.stop:
			return
		case <-time.After(time.Duration(r.PauseMs) * time.Millisecond):
		}
		message := primitive.NewMessage(r.Topic, []byte(fmt.Sprintf("%d|", number)))
		began := time.Now().UnixMilli()
		result, err := s.producer.SendSync(context.Background(), message)
		broker := ""
		if err == nil && result.Status == primitive.SendOK {
			broker = result.MessageQueue.BrokerName
		}
		s.ended = append(s.ended, []any{began, time.Now().UnixMilli(), number, broker})
	}
}
