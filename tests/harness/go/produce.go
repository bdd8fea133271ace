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

// load sends numbered messages: mode sync, async, oneway or batch (32 a batch).
func load(r request) (answer, error) {
	p, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{r.Namesrv}),
		producer.WithCredentials(r.credentials()),
		producer.WithGroupName("interop-go-producer"),
		producer.WithInstanceName(newName("producer")),
		producer.WithRetry(0),
	)
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	defer p.Shutdown()
	messages := make([]*primitive.Message, r.Count)
	for i := range messages {
		body := fmt.Sprintf("%d|", i)
		if missing := r.Size - len(body); missing > 0 {
			body += strings.Repeat("g", missing)
		}
		messages[i] = primitive.NewMessage(r.Topic, []byte(body))
		if r.Tag != "" {
			messages[i].WithTag(r.Tag)
		}
		if r.Keys != "" {
			messages[i].WithKeys([]string{fmt.Sprintf("%s%d", r.Keys, i)})
		}
	}
	switch r.Mode {
	case "sync":
		return sendSync(p, messages, 1)
	case "batch":
		return sendSync(p, messages, 32)
	case "async":
		return sendAsync(p, messages)
	case "oneway":
		for _, message := range messages {
			if err := p.SendOneWay(context.Background(), message); err != nil {
				return nil, err
			}
		}
		// This client does not mark its one-way requests, so they are answered. To close with unread
		// answers resets the connection, and a reset throws away what the broker has not read yet.
		time.Sleep(500 * time.Millisecond)
		return answer{"ok": len(messages)}, nil
	}
	return nil, fmt.Errorf("no mode %q", r.Mode)
}

func sendSync(p rocketmq.Producer, messages []*primitive.Message, batch int) (answer, error) {
	ok := 0
	ids := []string{}
	queueIDs := []int{}
	offsets := []int64{}
	for from := 0; from < len(messages); from += batch {
		part := messages[from:min(from+batch, len(messages))]
		result, err := p.SendSync(context.Background(), part...)
		if err != nil {
			return nil, err
		}
		if result.Status == primitive.SendOK {
			ok += len(part)
		}
		ids = append(ids, strings.Split(result.OffsetMsgID, ",")...)
		queueIDs = append(queueIDs, result.MessageQueue.QueueId)
		offsets = append(offsets, result.QueueOffset)
	}
	return answer{"ok": ok, "offsetMsgIds": ids, "queueIds": queueIDs, "offsets": offsets}, nil
}

func sendAsync(p rocketmq.Producer, messages []*primitive.Message) (answer, error) {
	var open sync.WaitGroup
	var guard sync.Mutex
	ok := 0
	failures := []string{}
	inFlight := make(chan struct{}, 64)
	done := func(_ context.Context, result *primitive.SendResult, err error) {
		guard.Lock()
		switch {
		case err != nil:
			failures = append(failures, err.Error())
		case result.Status == primitive.SendOK:
			ok++
		}
		guard.Unlock()
		<-inFlight
		open.Done()
	}
	for _, message := range messages {
		open.Add(1)
		inFlight <- struct{}{}
		if err := p.SendAsync(context.Background(), done, message); err != nil {
			return nil, err
		}
	}
	open.Wait()
	return answer{"ok": ok, "errors": failures}, nil
}
