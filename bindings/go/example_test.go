package bristlecone_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"bristlecone"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// temporary returns a pool that is removed at the end of an example.
func temporary() (pool *bristlecone.Pool, remove func()) {
	folder, err := os.MkdirTemp("", "bristlecone-example-")
	must(err)
	pool, err = bristlecone.Open(folder+"/trees.pool", bristlecone.Options{Create: true, MaxBytes: 64 << 20})
	must(err)
	return pool, func() {
		must(pool.Close())
		must(os.RemoveAll(folder))
	}
}

func Example() {
	pool, remove := temporary()
	defer remove()
	ages, err := bristlecone.OpenTree[string, uint64](pool, "ages")
	must(err)
	must(ages.Put("Methuselah", 4857)) // durable when it returns
	must(ages.Put("Prometheus", 4900))
	for item, err := range ages.Scan().From("M").Before("N").All() {
		must(err)
		fmt.Println(item.Key, item.Value)
	}
	_, present, err := ages.Get("Pando")
	fmt.Println(present, err)
	// Output:
	// Methuselah 4857
	// false <nil>
}

func ExamplePool_Transact() {
	pool, remove := temporary()
	defer remove()
	accounts, err := bristlecone.OpenTree[string, int64](pool, "accounts")
	must(err)
	must(accounts.Put("alice", 100))
	must(pool.Transact(context.Background(), func(tx *bristlecone.Transaction) error {
		mine := accounts.In(tx)
		balance, _, err := mine.Get("alice")
		if err != nil {
			return err
		}
		return errors.Join(mine.Put("alice", balance-10), mine.Put("bob", 10))
	}))
	items, err := accounts.Scan().Collect()
	fmt.Println(items, err)
	// Output: [{alice 90} {bob 10}] <nil>
}

func ExamplePool_Batch() {
	pool, remove := temporary()
	defer remove()
	accounts, err := bristlecone.OpenTree[string, int64](pool, "accounts")
	must(err)
	batch, err := pool.Batch()
	must(err)
	defer batch.Discard()
	must(accounts.To(batch).ExpectAbsent("alice"))
	must(accounts.To(batch).Put("alice", 100))
	fmt.Println(batch.Commit())
	again, err := pool.Batch()
	must(err)
	must(accounts.To(again).ExpectAbsent("alice"))
	fmt.Println(errors.Is(again.Commit(), bristlecone.ErrConflict))
	// Output:
	// <nil>
	// true
}

func ExamplePool_Snapshot() {
	pool, remove := temporary()
	defer remove()
	type place struct {
		Country string
		Rank    uint8
	}
	cities, err := bristlecone.OpenTree[place, string](pool, "cities")
	must(err)
	must(cities.Put(place{"NL", 1}, "Amsterdam"))
	then, err := pool.Snapshot(0)
	must(err)
	defer then.Close()
	must(cities.Put(place{"NL", 2}, "Rotterdam"))
	items, err := cities.At(then).Scan().Collect()
	fmt.Println(items, err)
	// Output: [{{NL 1} Amsterdam}] <nil>
}
