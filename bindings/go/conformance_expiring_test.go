package bristlecone

import (
	"fmt"
	"time"
)

// A tableExpiring is a tableTree that shows only live values, with the operations that take or return times.
type tableExpiring interface {
	tableTree
	oneAt(what string, key any, value, expected *any, at Expiry) (status string, found *any, err error)
	expiry(key any) (Expiry, bool, error)
	setExpiry(key any, at Expiry) (Expiry, bool, error)
	removeExpired(budget uint64) (Removal, error)
	expireAfter() (time.Duration, error)
}

// An expiringAdapter makes a tableExpiring of a tree.
type expiringAdapter[K, V any] struct {
	adapter[K, V]
	tree *ExpiringTree[K, V]
}

func adaptLive[K, V any](tree *ExpiringTree[K, V], err error) (tableTree, error) {
	if err != nil {
		return nil, err
	}
	of, err := adapt(tree.live, nil)
	if err != nil {
		return nil, err
	}
	return expiringAdapter[K, V]{of.(adapter[K, V]), tree}, nil
}

// A typedExpiring is a tree of a type of values that expire.
type typedExpiring[K, V any] struct{ adapter[K, Expiring[V]] }

func (a typedExpiring[K, V]) live() (tableTree, error) { return adaptLive(Live[K, V](a.tree)) }

// typedExpiringBy opens such a tree, or creates it with a design.
func typedExpiringBy[K, V any]() opening {
	return func(pool *Pool, name, design string, expireAfter time.Duration) (tableTree, error) {
		tree, err := typedBy[K, Expiring[V]]()(pool, name, design, expireAfter)
		if err != nil {
			return nil, err
		}
		return typedExpiring[K, V]{tree.(adapter[K, Expiring[V]])}, nil
	}
}

func (a expiringAdapter[K, V]) oneAt(what string, key any, value, expected *any, at Expiry) (status string, found *any, err error) {
	k, err := convert[K](a.keys, key)
	if err != nil {
		return "", nil, err
	}
	v, err := a.optional(value)
	if err != nil {
		return "", nil, err
	}
	e, err := a.optional(expected)
	if err != nil {
		return "", nil, err
	}
	var old V
	var ok bool
	status = "ok"
	switch what {
	case "put":
		err = a.tree.Put(k, *v, at)
	case "exchange":
		old, ok, err = a.tree.Exchange(k, *v, at)
	case "insert":
		var inserted bool
		if old, inserted, err = a.tree.Insert(k, *v, at); !inserted {
			status, ok = "present", true
		}
	case "update":
		if old, ok, err = a.tree.Update(k, *v, at); !ok {
			status = "absent"
		}
	case "remove":
		if old, ok, err = a.tree.Remove(k); !ok {
			status = "absent"
		}
	case "compare_and_swap":
		held, swapped, failed := a.tree.CompareAndSwap(k, e, v, at)
		if err = failed; !swapped {
			status = "differs"
		}
		if held != nil {
			old, ok = *held, true
		}
	}
	if err != nil {
		return "", nil, err
	}
	found, err = a.found(old, ok)
	return status, found, err
}

func (a expiringAdapter[K, V]) expiry(key any) (Expiry, bool, error) {
	k, err := convert[K](a.keys, key)
	if err != nil {
		return 0, false, err
	}
	return a.tree.Expiry(k)
}

func (a expiringAdapter[K, V]) setExpiry(key any, at Expiry) (Expiry, bool, error) {
	k, err := convert[K](a.keys, key)
	if err != nil {
		return 0, false, err
	}
	return a.tree.SetExpiry(k, at)
}

func (a expiringAdapter[K, V]) removeExpired(budget uint64) (Removal, error) {
	return a.tree.RemoveExpired(budget)
}

func (a expiringAdapter[K, V]) expireAfter() (time.Duration, error) { return a.tree.ExpireAfter() }

// number returns an argument that is a number.
func (of step) number(name string, otherwise uint64) uint64 {
	if number, ok := of[name].(float64); ok {
		return uint64(number)
	}
	return otherwise
}

func (of step) millis(name string) time.Duration {
	return time.Duration(of.number(name, 0)) * time.Millisecond
}

func onExpiring(of step, tree tableExpiring) (status string, gives any, err error) {
	keys, values := tree.kinds()
	at := Expiry(of.number("expires", uint64(DefaultExpiry)))
	switch what := of.text("do"); what {
	case "get":
		return found(tree.getIn(*of.datum("key", keys), nil, nil))
	case "contains":
		gives, err = tree.contains(*of.datum("key", keys))
	case "scan", "prefix":
		gives, err = tree.scan(of.bounds(keys), nil, nil)
	case "put", "exchange", "insert", "update", "remove", "compare_and_swap":
		value := of.datum("value", values)
		if what == "compare_and_swap" {
			value = of.datum("wanted", values)
		}
		status, old, err := tree.oneAt(what, *of.datum("key", keys), value, of.datum("expected", values), at)
		if old == nil {
			return status, nil, err
		}
		return status, old, err
	default:
		return onTimes(of, tree, what, at)
	}
	return "ok", gives, err
}

func onTimes(of step, tree tableExpiring, what string, at Expiry) (status string, gives any, err error) {
	keys, _ := tree.kinds()
	time := func(at Expiry, ok bool, err error) (string, any, error) {
		if !ok {
			return "absent", nil, err
		}
		return "ok", uint64(at), err
	}
	switch what {
	case "expiry":
		return time(tree.expiry(*of.datum("key", keys)))
	case "set_expiry":
		return time(tree.setExpiry(*of.datum("key", keys), at))
	case "expires_later":
		at, _, err := tree.expiry(*of.datum("key", keys))
		return "ok", uint64(at) > of.number("than", 0), err
	case "remove_expired":
		pass, err := tree.removeExpired(of.number("budget", 0))
		return "ok", fmt.Sprint([]any{pass.Examined, pass.Removed, pass.Complete}), err
	case "expire_after":
		after, err := tree.expireAfter()
		if after == 0 {
			return "ok", nil, err
		}
		return "ok", uint64(after.Milliseconds()), err
	}
	return "", nil, fmt.Errorf("an unknown operation: %s", what)
}
