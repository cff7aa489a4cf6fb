package wminbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

type orderPlaced struct {
	Number string `json:"number"`
}

func ExampleNewHandler() {
	ctx := context.Background()
	pool, err := sql.Open("sqlite", ":memory:")
	check(err)
	pool.SetMaxOpenConns(1)
	db := bun.NewDB(pool, sqlitedialect.New())
	defer db.Close()

	names := inbox.NewNameMap()
	inbox.Register[orderPlaced](names, "order_placed")
	repo, err := inbox.NewRepository(db, names, inbox.Config{})
	check(err)
	check(repo.Migrate(ctx))
	park, err := wminbox.NewPark(db, wminbox.ParkConfig{})
	check(err)
	check(park.Migrate(ctx))

	handle, err := wminbox.NewHandler(repo, wminbox.Config{
		Source: "shop",
		Names:  []wminbox.NameExtractor{wminbox.FixedName("order_placed")},
		Reject: park,
	})
	check(err)

	// Any Watermill Pub/Sub; this one lives in memory.
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	check(err)
	router.AddConsumerHandler("inbox", "orders", broker, handle)
	go func() { check(router.Run(ctx)) }()
	<-router.Running()

	for _, id := range []string{"o-1", "o-1", "o-2", ""} { // one repeat, one without an id
		check(broker.Publish("orders", message.NewMessage(id, []byte(`{"number":"`+id+`"}`))))
	}
	check(router.Close())

	var stored, parked int
	check(db.NewRaw(`SELECT (SELECT count(*) FROM inbox_messages), (SELECT count(*) FROM inbox_rejects)`).Scan(ctx, &stored, &parked))
	fmt.Println(stored, "stored,", parked, "parked")
	// Output: 2 stored, 1 parked
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
