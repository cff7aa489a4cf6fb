package wmcqrs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/google/go-cmp/cmp"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
	"github.com/letterbox-go/letterbox/transport/wmcqrs"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

type bookRoom struct{ Room string }

type roomBooked struct{ Room string }

func TestWatermillHandlersServeTheInboxAsTheyAre(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	var got []string
	note := func(format string, args ...any) { got = append(got, fmt.Sprintf(format, args...)) }

	marshaler := cqrs.JSONMarshaler{GenerateName: cqrs.StructName}
	names := inbox.NewNameMap()
	wmcqrs.Register[bookRoom](names, marshaler)
	wmcqrs.Register[roomBooked](names, marshaler)
	requests, events := mediator.NewRequestMap(), mediator.NewEventMap()
	err := errors.Join(
		wmcqrs.BindCommands(requests, cqrs.NewCommandHandler("book", func(ctx context.Context, c *bookRoom) error {
			_, inside := inbox.FromContext(ctx)
			note("book %s, in the inbox: %v", c.Room, inside)
			return nil
		})),
		wmcqrs.BindEvents(events,
			cqrs.NewEventHandler("notify", func(_ context.Context, e *roomBooked) error { note("notify %s", e.Room); return nil }),
			cqrs.NewEventHandler("report", func(_ context.Context, e *roomBooked) error { note("report %s", e.Room); return nil }),
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	repo, err := inbox.NewRepository(db, names, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	// As a bus of Watermill publishes it.
	handle, err := wminbox.NewHandler(repo, wminbox.Config{Reject: wminbox.Nack{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{&bookRoom{"1"}, roomBooked{"1"}} {
		msg, err := marshaler.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(handle(msg), handle(msg)); err != nil { // delivered twice
			t.Fatal(err)
		}
	}
	// And as a Go value.
	if _, err := repo.Accept(t.Context(), []inbox.Entry{{MessageID: "2", Message: bookRoom{"2"}}}); err != nil {
		t.Fatal(err)
	}
	processor, err := inbox.NewProcessor(repo, inbox.ProcessorConfig{
		Requests: mediator.NewRequestMediator(requests), Events: mediator.NewEventMediator(events), BatchSize: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := processor.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"book 1, in the inbox: true": 1, "book 2, in the inbox: true": 1, "notify 1": 1, "report 1": 1}
	counts := map[string]int{}
	for _, line := range got {
		counts[line]++
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

func TestWrongHandlersAreErrors(t *testing.T) {
	t.Parallel()
	command := cqrs.NewCommandHandler("book", func(context.Context, *bookRoom) error { return nil })
	event := cqrs.NewEventHandler("notify", func(context.Context, *roomBooked) error { return nil })
	var taken *mediator.AlreadyBoundError
	if err := wmcqrs.BindCommands(mediator.NewRequestMap(), command, command); !errors.As(err, &taken) {
		t.Errorf("a command bound twice: %v", err)
	}
	if err := wmcqrs.BindEvents(mediator.NewEventMap(), event, event); !errors.As(err, &taken) {
		t.Errorf("an event handler bound twice: %v", err)
	}
	if err := wmcqrs.BindCommands(mediator.NewRequestMap(), nil); err == nil {
		t.Error("a nil handler was bound")
	}
	if err := wmcqrs.BindCommands(mediator.NewRequestMap(), byValue{command}); err == nil {
		t.Error("a handler of values was bound")
	}
}

type byValue struct{ cqrs.CommandHandler }

func (byValue) NewCommand() any { return bookRoom{} }
