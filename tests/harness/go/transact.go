package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var states = map[string]primitive.LocalTransactionState{
	"commit":   primitive.CommitMessageState,
	"rollback": primitive.RollbackMessageState,
	"unknown":  primitive.UnknowState,
}

// listener ends local transactions as a message's property says, and checks with one answer.
type listener struct {
	guard  sync.Mutex
	answer string
	checks []string
}

func (l *listener) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	return states[m.GetProperty("local")]
}

func (l *listener) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	l.guard.Lock()
	defer l.guard.Unlock()
	l.checks = append(l.checks, string(m.Body))
	return states[l.answer]
}

func (l *listener) seen() []string {
	l.guard.Lock()
	defer l.guard.Unlock()
	return append([]string{}, l.checks...)
}

// transact sends one transaction for each of "locals" (how its local part ends), then waits until
// the broker has asked so often as "expected" says.
func transact(r request) (answer, error) {
	l := &listener{answer: r.Answer}
	p, err := rocketmq.NewTransactionProducer(l,
		producer.WithNameServer([]string{r.Namesrv}),
		producer.WithCredentials(r.credentials()),
		producer.WithGroupName(r.Group),
		producer.WithInstanceName(newName("transacting")),
		producer.WithRetry(0),
	)
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	defer p.Shutdown()
	ok := 0
	for i, local := range r.Locals {
		message := primitive.NewMessage(r.Topic, []byte(fmt.Sprintf("%d|%s", i, local)))
		message.WithProperty("local", local)
		result, err := p.SendMessageInTransaction(context.Background(), message)
		if err != nil {
			return nil, err
		}
		if result.Status == primitive.SendOK {
			ok++
		}
	}
	end := time.Now().Add(time.Duration(r.TimeoutMs) * time.Millisecond)
	for len(l.seen()) < r.Expected && time.Now().Before(end) {
		time.Sleep(20 * time.Millisecond)
	}
	// The answer to the last check is on its way.
	time.Sleep(200 * time.Millisecond)
	return answer{"ok": ok, "checks": l.seen()}, nil
}
