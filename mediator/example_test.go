package mediator_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/letterbox-go/letterbox/mediator"
)

type CreditAccount struct {
	ID    string
	Cents int
}

type Receipt struct{ Balance int }

type CloseAccount struct{ ID string }

type AccountCredited struct {
	ID    string
	Cents int
}

func ExampleBindRequest() {
	requests := mediator.NewRequestMap()
	mediator.BindRequest(requests, func(_ context.Context, c CreditAccount) (Receipt, error) {
		return Receipt{Balance: 1000 + c.Cents}, nil
	})

	m := mediator.NewRequestMediator(requests)
	receipt, err := mediator.Send[Receipt](context.Background(), m, CreditAccount{ID: "a-1", Cents: 500})
	fmt.Println(receipt.Balance, err)

	// Output:
	// 1500 <nil>
}

func ExampleBindCommand() {
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(_ context.Context, c CloseAccount) error {
		fmt.Println("closing", c.ID)
		return nil
	})

	m := mediator.NewRequestMediator(requests)
	response, err := m.Send(context.Background(), &CloseAccount{ID: "a-1"}) // pointers and values are one type
	fmt.Println(response, err)

	_, err = m.Send(context.Background(), CreditAccount{ID: "a-1"})
	fmt.Println(err)

	// Output:
	// closing a-1
	// <nil> <nil>
	// mediator: no handler for request mediator_test.CreditAccount
}

func ExampleBindEvent() {
	events := mediator.NewEventMap()
	mediator.BindEvent(events, "audit", func(_ context.Context, e AccountCredited) error {
		fmt.Println("audit:", e.ID, e.Cents)
		return nil
	})
	mediator.BindEvent(events, "notify", func(context.Context, AccountCredited) error {
		return errors.New("mail server down")
	})

	err := mediator.NewEventMediator(events).Send(context.Background(), AccountCredited{ID: "a-1", Cents: 500})
	var failed *mediator.HandlerError
	if errors.As(err, &failed) {
		fmt.Println(failed.Handler, "failed:", failed.Err)
	}

	// Output:
	// audit: a-1 500
	// notify failed: mail server down
}

func ExampleNewRequestMediator() {
	named := func(name string) mediator.Middleware {
		return func(ctx context.Context, message any, next mediator.Next) (any, error) {
			fmt.Println(name, "before", mediator.TypeOf(message))
			response, err := next(ctx, message)
			fmt.Println(name, "after")
			return response, err
		}
	}

	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(_ context.Context, c CloseAccount) error {
		fmt.Println("closing", c.ID)
		return nil
	})

	m := mediator.NewRequestMediator(requests, named("outer"), named("inner"))
	if _, err := m.Send(context.Background(), CloseAccount{ID: "a-1"}); err != nil {
		fmt.Println(err)
	}

	// Output:
	// outer before mediator_test.CloseAccount
	// inner before mediator_test.CloseAccount
	// closing a-1
	// inner after
	// outer after
}
