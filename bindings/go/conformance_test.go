package bristlecone

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var designs = []string{"sstree", "nbtree", "cclbtree", "lodgetree", "wotree"}

type step map[string]any

type conformanceCase struct {
	Name  string
	Needs []string
	Steps []step
}

// TestConformance runs the table of all languages for every design, in trees of any, and in typed trees.
func TestConformance(t *testing.T) {
	files, err := filepath.Glob("../conformance/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no table", err)
	}
	ran := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		var table struct{ Cases []conformanceCase }
		if err == nil {
			err = json.Unmarshal(text, &table)
		}
		if err != nil {
			t.Fatal(file, err)
		}
		for _, of := range table.Cases {
			for _, design := range designs {
				for _, typed := range []bool{false, true} {
					runCase(t, filepath.Base(file), of, design, typed)
					ran++
				}
			}
		}
	}
	if ran < 100*len(designs)*2 {
		t.Errorf("only %d cases ran", ran)
	}
}

func runCase(t *testing.T, file string, of conformanceCase, design string, typed bool) {
	s := &runner{
		path: scratchPath(t), design: design, typed: typed, trees: map[string]tableTree{},
		transactions: map[string]*Transaction{}, snapshots: map[string]*Snapshot{},
	}
	var err error
	options := Options{Create: true, MaxBytes: 64 << 20}
	if slices.Contains(of.Needs, "changes") {
		options.Domain = DomainJournal
	}
	if s.pool, err = Open(s.path, options); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(filepath.Dir(s.path))
	defer s.pool.Close()
	for _, step := range of.Steps {
		status, gives := s.run(step)
		if problem := s.compare(step, status, gives); problem != "" {
			t.Errorf("%s: %s, %s, typed %v: %v: %s", file, of.Name, design, typed, step, problem)
			return
		}
	}
}

type runner struct {
	path, design string
	typed        bool
	pool         *Pool
	trees        map[string]tableTree
	transactions map[string]*Transaction
	snapshots    map[string]*Snapshot
}

// A tableTree is a tree whose keys and values are of type any. A nil result is an absent value.
type tableTree interface {
	kinds() (string, string)
	close() error
	check() ([]Issue, error)
	one(what string, key any, value, expected *any) (status string, found *any, err error)
	contains(key any) (bool, error)
	len() (uint64, error)
	getIn(key any, snapshot *Snapshot, tx *Transaction) (any, bool, error)
	changeIn(what string, key any, value *any, batch *Batch, tx *Transaction) error
	scan(bounds tableBounds, snapshot *Snapshot, tx *Transaction) ([]Item[any, any], error)
	removeRange(bounds tableBounds) (uint64, error)
	getMany(keys []any) ([]*any, error)
	putMany(items []Item[any, any]) error
	removeMany(keys []any) error
	live() (tableTree, error)
}

type tableBounds struct {
	from, end, prefix         *any
	fromExcluded, endIncluded bool
	reverse                   bool
	limit                     int
}

// An adapter makes a tableTree of a tree.
type adapter[K, V any] struct {
	tree         *Tree[K, V]
	keys, values *codec
}

func adapt[K, V any](tree *Tree[K, V], err error) (tableTree, error) {
	if err != nil {
		return nil, err
	}
	keys, values := tree.Kinds()
	a := adapter[K, V]{tree: tree}
	if a.keys, err = dynamicCodec(keys); err == nil {
		a.values, err = dynamicCodec(values)
	}
	return a, err
}

func convert[T any](of *codec, value any) (T, error) {
	var none T
	if to, ok := any(&none).(*any); ok {
		*to = value
		return none, nil
	}
	bytes, err := encode(of, nil, &value)
	if err != nil {
		return none, err
	}
	typed, err := codecFor[T]("")
	if err != nil {
		return none, err
	}
	return decode[T](typed, bytes)
}

func convertBack[T any](of *codec, value T) (any, error) {
	if result, ok := any(&value).(*any); ok {
		return *result, nil
	}
	typed, err := codecFor[T]("")
	if err != nil {
		return nil, err
	}
	bytes, err := encode(typed, nil, &value)
	if err != nil {
		return nil, err
	}
	return decode[any](of, bytes)
}

// live returns the tree by a handle that shows only live values; those of typed trees have adapters of their own.
func (a adapter[K, V]) live() (tableTree, error) {
	return adaptLive(Live[K, any](a.tree))
}

func (a adapter[K, V]) kinds() (string, string) { return a.tree.Kinds() }
func (a adapter[K, V]) close() error            { return a.tree.Close() }
func (a adapter[K, V]) check() ([]Issue, error) { return a.tree.Check() }
func (a adapter[K, V]) len() (uint64, error)    { return a.tree.Len() }
func (a adapter[K, V]) contains(key any) (bool, error) {
	k, err := convert[K](a.keys, key)
	if err != nil {
		return false, err
	}
	return a.tree.Contains(k)
}

func (a adapter[K, V]) optional(value *any) (*V, error) {
	if value == nil {
		return nil, nil
	}
	v, err := convert[V](a.values, *value)
	return &v, err
}

func (a adapter[K, V]) found(value V, ok bool) (*any, error) {
	if !ok {
		return nil, nil
	}
	back, err := convertBack(a.values, value)
	return &back, err
}

func (a adapter[K, V]) one(what string, key any, value, expected *any) (status string, found *any, err error) {
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
		return status, nil, a.tree.Put(k, *v)
	case "exchange":
		old, ok, err = a.tree.Exchange(k, *v)
	case "insert":
		var inserted bool
		if old, inserted, err = a.tree.Insert(k, *v); !inserted {
			status, ok = "present", true
		}
	case "update":
		if old, ok, err = a.tree.Update(k, *v); !ok {
			status = "absent"
		}
	case "remove":
		if old, ok, err = a.tree.Remove(k); !ok {
			status = "absent"
		}
	case "compare_and_swap":
		held, swapped, failed := a.tree.CompareAndSwap(k, e, v)
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

func (a adapter[K, V]) getIn(key any, snapshot *Snapshot, tx *Transaction) (value any, ok bool, err error) {
	k, err := convert[K](a.keys, key)
	if err != nil {
		return nil, false, err
	}
	var v V
	switch {
	case snapshot != nil:
		v, ok, err = a.tree.At(snapshot).Get(k)
	case tx != nil:
		v, ok, err = a.tree.In(tx).Get(k)
	default:
		v, ok, err = a.tree.Get(k)
	}
	if err != nil || !ok {
		return nil, false, err
	}
	value, err = convertBack(a.values, v)
	return value, true, err
}

func (a adapter[K, V]) changeIn(what string, key any, value *any, batch *Batch, tx *Transaction) error {
	k, err := convert[K](a.keys, key)
	if err != nil {
		return err
	}
	v, err := a.optional(value)
	if err != nil {
		return err
	}
	switch {
	case tx != nil && what == "put":
		return a.tree.In(tx).Put(k, *v)
	case tx != nil:
		return a.tree.In(tx).Remove(k)
	case what == "put":
		return a.tree.To(batch).Put(k, *v)
	case what == "remove":
		return a.tree.To(batch).Remove(k)
	case v == nil:
		return a.tree.To(batch).ExpectAbsent(k)
	}
	return a.tree.To(batch).Expect(k, *v)
}

func (a adapter[K, V]) within(bounds tableBounds, snapshot *Snapshot, tx *Transaction) (Scan[K, V], error) {
	scan := a.tree.Scan()
	if snapshot != nil {
		scan = a.tree.At(snapshot).Scan()
	}
	if tx != nil {
		scan = a.tree.In(tx).Scan()
	}
	bound := func(key *any, excluded, included func(K) Scan[K, V], isIncluded bool) error {
		if key == nil {
			return nil
		}
		k, err := convert[K](a.keys, *key)
		if err != nil {
			return err
		}
		if isIncluded {
			scan = included(k)
		} else {
			scan = excluded(k)
		}
		return nil
	}
	if err := bound(bounds.from, func(k K) Scan[K, V] { return scan.After(k) }, func(k K) Scan[K, V] { return scan.From(k) }, !bounds.fromExcluded); err != nil {
		return scan, err
	}
	if err := bound(bounds.end, func(k K) Scan[K, V] { return scan.Before(k) }, func(k K) Scan[K, V] { return scan.Through(k) }, bounds.endIncluded); err != nil {
		return scan, err
	}
	if err := bound(bounds.prefix, a.tree.Prefix, a.tree.Prefix, true); err != nil {
		return scan, err
	}
	if bounds.reverse {
		scan = scan.Reverse()
	}
	if bounds.limit >= 0 {
		scan = scan.Limit(bounds.limit)
	}
	return scan, nil
}

func (a adapter[K, V]) removeRange(bounds tableBounds) (uint64, error) {
	scan, err := a.within(bounds, nil, nil)
	if err != nil {
		return 0, err
	}
	return scan.Remove()
}

func (a adapter[K, V]) scan(bounds tableBounds, snapshot *Snapshot, tx *Transaction) (items []Item[any, any], err error) {
	scan, err := a.within(bounds, snapshot, tx)
	if err != nil {
		return nil, err
	}
	items = []Item[any, any]{}
	for item, err := range scan.All() {
		if err != nil {
			return nil, err
		}
		key, err := convertBack(a.keys, item.Key)
		if err != nil {
			return nil, err
		}
		value, err := convertBack(a.values, item.Value)
		if err != nil {
			return nil, err
		}
		items = append(items, Item[any, any]{key, value})
	}
	return items, nil
}

func (a adapter[K, V]) all(keys []any) (converted []K, err error) {
	for _, key := range keys {
		k, err := convert[K](a.keys, key)
		if err != nil {
			return nil, err
		}
		converted = append(converted, k)
	}
	return converted, nil
}

func (a adapter[K, V]) getMany(keys []any) (found []*any, err error) {
	ks, err := a.all(keys)
	if err != nil {
		return nil, err
	}
	values, ok, err := a.tree.GetMany(ks)
	if err != nil {
		return nil, err
	}
	found = make([]*any, len(values))
	for at := range values {
		if found[at], err = a.found(values[at], ok[at]); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (a adapter[K, V]) putMany(items []Item[any, any]) error {
	var keys []K
	var values []V
	for _, item := range items {
		k, err := convert[K](a.keys, item.Key)
		if err != nil {
			return err
		}
		v, err := convert[V](a.values, item.Value)
		if err != nil {
			return err
		}
		keys, values = append(keys, k), append(values, v)
	}
	return a.tree.PutMany(keys, values)
}

func (a adapter[K, V]) removeMany(keys []any) error {
	ks, err := a.all(keys)
	if err != nil {
		return err
	}
	return a.tree.RemoveMany(ks)
}

type opening func(pool *Pool, name, design string, expireAfter time.Duration) (tableTree, error)

// typedBy opens a tree of these types, or creates it with a design.
func typedBy[K, V any]() opening {
	return func(pool *Pool, name, design string, expireAfter time.Duration) (tableTree, error) {
		if design == "" {
			return adapt(OpenTree[K, V](pool, name))
		}
		return adapt(CreateTree[K, V](pool, name, TreeOptions{Design: design, ExpireAfter: expireAfter}))
	}
}

type namedPair struct {
	Name   string
	Number uint64
}

type userID uint64

var typedTrees = map[[2]string]opening{
	{"u64", "u64"}:                 typedBy[uint64, userID](),
	{"i64", "i64"}:                 typedBy[int, int64](),
	{"i64", "u64"}:                 typedBy[int64, uint](),
	{"u8", "u8"}:                   typedBy[uint8, uint8](),
	{"i16", "i16"}:                 typedBy[int16, int16](),
	{"u128", "u128"}:               typedBy[Uint128, Uint128](),
	{"i128", "i128"}:               typedBy[Int128, Int128](),
	{"f32", "f32"}:                 typedBy[float32, float32](),
	{"f64", "f64"}:                 typedBy[float64, float64](),
	{"f64", "u64"}:                 typedBy[float64, uint64](),
	{"bool", "bool"}:               typedBy[bool, bool](),
	{"char", "char"}:               typedBy[Char, Char](),
	{"()", "()"}:                   typedBy[struct{}, struct{}](),
	{"str", "str"}:                 typedBy[string, string](),
	{"str", "u64"}:                 typedBy[string, uint64](),
	{"u64", "str"}:                 typedBy[uint64, string](),
	{"bytes", "bytes"}:             typedBy[[]byte, []byte](),
	{"[u8; 4]", "[u8; 4]"}:         typedBy[[4]byte, [4]byte](),
	{"Option<u64>", "Option<u64>"}: typedBy[Option[uint64], Option[uint64]](),
	{"Option<Option<u8>>", "Option<Option<u8>>"}: typedBy[Option[Option[uint8]], Option[Option[uint8]]](),
	{"(str, u64)", "(str, u64)"}:                 typedBy[namedPair, namedPair](),
	{"u64", "json"}:                              typedBy[uint64, JSON](),
	{"u64", "postcard"}:                          typedBy[uint64, Postcard](),
	{"(str, u64)", "Option<bytes>"}:              typedBy[namedPair, Option[[]byte]](),
	{"u64", "Expiring<u64>"}:                     typedExpiringBy[uint64, uint64](),
	{"str", "Expiring<u64>"}:                     typedExpiringBy[string, uint64](),
	{"str", "Expiring<str>"}:                     typedExpiringBy[string, string](),
	{"str", "Expiring<json>"}:                    typedExpiringBy[string, JSON](),
	{"u64", "Expiring<bytes>"}:                   typedExpiringBy[uint64, []byte](),
}

func (s *runner) createTree(name, keys, values, design string, expireAfter time.Duration) (tableTree, error) {
	if open, ok := typedTrees[[2]string{keys, values}]; ok && s.typed {
		return open(s.pool, name, design, expireAfter)
	}
	return adapt(CreateTree[any, any](s.pool, name, TreeOptions{Design: design, KeyKind: keys, ValueKind: values, ExpireAfter: expireAfter}))
}

func (s *runner) openTree(name, keys, values string) (tableTree, error) {
	if open, ok := typedTrees[[2]string{keys, values}]; ok && s.typed {
		return open(s.pool, name, "", 0)
	}
	tree, err := OpenTree[any, any](s.pool, name)
	if err != nil {
		return nil, err
	}
	if k, v := tree.Kinds(); (keys != "" && keys != k) || (values != "" && values != v) {
		return nil, errors.Join(usage("other kinds"), tree.Close())
	}
	return adapt(tree, nil)
}

func (of step) text(name string) string {
	text, _ := of[name].(string)
	return text
}

func (of step) flag(name string) bool {
	flag, _ := of[name].(bool)
	return flag
}

func (of step) datum(name, kind string) *any {
	value, ok := of[name]
	if !ok {
		return nil
	}
	datum := parseDatum(kind, value)
	return &datum
}

func list(value any) []any {
	values, _ := value.([]any)
	return values
}

var statusNames = map[Status]string{
	ErrUsage: "usage", ErrInUse: "in_use", ErrAbsent: "absent", ErrReadOnly: "read_only", ErrConflict: "conflict",
	ErrSnapshotTooOld: "snapshot_too_old", ErrClosed: "usage",
}

// run makes a step; it returns the status and what was returned: nil, *any, []*any, []Item, bool, uint64 or a text.
func (s *runner) run(of step) (status string, gives any) {
	status, gives, err := s.try(of)
	if err != nil {
		name, ok := statusNames[statusOf(err)]
		if !ok {
			name = err.Error()
		}
		return name, nil
	}
	return status, gives
}

func (s *runner) try(of step) (status string, gives any, err error) {
	if name, ok := of["in"].(string); ok {
		return s.within(of, s.transactions[name], s.snapshots[name])
	}
	name := of.text("on")
	switch of.text("do") {
	case "create":
		design := of.text("design")
		if design == "" {
			design = s.design
		}
		tree, err := s.createTree(name, of.text("key_kind"), of.text("value_kind"), design, of.millis("expire_after"))
		if err == nil {
			s.trees[name] = tree
		}
		return "ok", nil, err
	case "open":
		tree, err := s.openTree(name, of.text("key_kind"), of.text("value_kind"))
		if err == nil {
			s.trees[name] = tree
		}
		return "ok", nil, err
	case "expiring":
		live, err := s.trees[name].live()
		if err == nil {
			s.trees[of.text("as")] = live
		}
		return "ok", nil, err
	case "close":
		return "ok", nil, s.trees[name].close()
	case "drop":
		return "ok", nil, s.pool.DropTree(name)
	case "rename":
		return "ok", nil, s.pool.RenameTree(name, of.text("to"))
	case "clear":
		return "ok", nil, s.pool.ClearTree(name)
	case "trees":
		trees, err := s.pool.Trees()
		names := make([]string, len(trees))
		for at, tree := range trees {
			names[at] = fmt.Sprint([]string{tree.Name, tree.KeyKind, tree.ValueKind})
		}
		slices.Sort(names)
		return "ok", fmt.Sprint(names), err
	case "check":
		return "ok", nil, s.checkAll()
	case "close_pool":
		return "ok", nil, s.pool.Close()
	case "reopen":
		if err := s.pool.Close(); err != nil {
			return "", nil, err
		}
		clear(s.trees)
		s.pool, err = Open(s.path, Options{ReadOnly: of.flag("read_only")})
		return "ok", nil, err
	case "batch":
		return "ok", nil, s.batch(of)
	case "begin":
		s.transactions[of.text("as")], err = s.pool.Begin()
		return "ok", nil, err
	case "commit":
		return "ok", nil, s.transactions[of.text("of")].Commit()
	case "rollback":
		s.transactions[of.text("of")].Rollback()
		return "ok", nil, nil
	case "snapshot":
		s.snapshots[of.text("as")], err = s.pool.Snapshot(0)
		return "ok", nil, err
	case "release":
		return "ok", nil, s.snapshots[of.text("of")].Close()
	case "changes":
		commits, err := s.commits()
		return "ok", commits, err
	}
	if live, ok := s.trees[name].(tableExpiring); ok {
		return onExpiring(of, live)
	}
	return s.onTree(of, s.trees[name])
}

// commits returns the changes of the durable commits so far.
func (s *runner) commits() (commits [][]Change, err error) {
	stream, err := s.pool.Changes(0)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	commits = [][]Change{}
	for commit, err := range stream.All() {
		if err != nil {
			return nil, err
		}
		commits = append(commits, commit.Changes)
	}
	return commits, nil
}

// compareCommits returns the difference of commits from those of the table.
func compareCommits(gives [][]Change, wanted []any, keys, values string) string {
	if len(gives) != len(wanted) {
		return fmt.Sprintf("%d commits: %v", len(gives), gives)
	}
	for at, changes := range gives {
		if len(changes) != len(list(wanted[at])) {
			return fmt.Sprintf("commit %d: %v", at, changes)
		}
		for number, change := range changes {
			if problem := compareChange(change, list(wanted[at])[number].(map[string]any), keys, values); problem != "" {
				return fmt.Sprintf("commit %d, change %d: %s: %+v", at, number, problem, change)
			}
		}
	}
	return ""
}

func compareChange(change Change, wanted step, keys, values string) string {
	existed, looked := wanted["existed"].(bool)
	if change.What.String() != wanted.text("what") || change.Tree != wanted.text("tree") || change.RenamedTo != wanted.text("renamed_to") ||
		change.Existed.Valid != looked || change.Existed.Value != existed {
		return "differs"
	}
	for _, datum := range []struct {
		name, kind, found string
		is                any
	}{{"key", keys, change.KeyKind, change.Key}, {"value", values, change.ValueKind, change.Value}} {
		want, ok := wanted[datum.name]
		if !ok && datum.is != nil {
			return "has a " + datum.name
		}
		if !ok {
			continue
		}
		if datum.kind != datum.found {
			return "has another kind"
		}
		if problem := differ(datum.kind, datum.is, parseDatum(datum.kind, want)); problem != "" {
			return problem
		}
	}
	return ""
}

func (s *runner) checkAll() error {
	found, err := s.pool.Check()
	for _, tree := range s.trees {
		ofTree, failed := tree.check()
		found, err = append(found, ofTree...), errors.Join(err, failed)
	}
	if len(found) > 0 {
		return fmt.Errorf("damage: %v", found)
	}
	return err
}

func (s *runner) batch(of step) error {
	batch, err := s.pool.Batch()
	if err != nil {
		return err
	}
	defer batch.Discard()
	for _, change := range list(of["changes"]) {
		change := step(change.(map[string]any))
		tree := s.trees[change.text("on")]
		keys, values := tree.kinds()
		if err := tree.changeIn(change.text("do"), *change.datum("key", keys), change.datum("value", values), batch, nil); err != nil {
			return err
		}
	}
	return batch.Commit()
}

func (of step) bounds(keys string) tableBounds {
	bounds := tableBounds{
		from: of.datum("from", keys), end: of.datum("end", keys), prefix: of.datum("prefix", keys),
		fromExcluded: of.flag("from_excluded"), endIncluded: of.flag("end_included"), reverse: of.flag("reverse"), limit: -1,
	}
	if limit, ok := of["limit"].(float64); ok {
		bounds.limit = int(limit)
	}
	return bounds
}

func (s *runner) within(of step, tx *Transaction, snapshot *Snapshot) (string, any, error) {
	tree := s.trees[of.text("on")]
	keys, values := tree.kinds()
	switch of.text("do") {
	case "get":
		value, ok, err := tree.getIn(*of.datum("key", keys), snapshot, tx)
		return found(value, ok, err)
	case "scan":
		items, err := tree.scan(of.bounds(keys), snapshot, tx)
		return "ok", items, err
	}
	return "ok", nil, tree.changeIn(of.text("do"), *of.datum("key", keys), of.datum("value", values), nil, tx)
}

func found(value any, ok bool, err error) (string, any, error) {
	if !ok {
		return "absent", nil, err
	}
	return "ok", &value, err
}

func (s *runner) onTree(of step, tree tableTree) (status string, gives any, err error) {
	keys, values := tree.kinds()
	switch what := of.text("do"); what {
	case "get":
		return found(tree.getIn(*of.datum("key", keys), nil, nil))
	case "contains":
		gives, err = tree.contains(*of.datum("key", keys))
	case "len":
		gives, err = tree.len()
	case "scan", "prefix":
		gives, err = tree.scan(of.bounds(keys), nil, nil)
	case "remove_range", "remove_prefix":
		gives, err = tree.removeRange(of.bounds(keys))
	case "get_many":
		gives, err = tree.getMany(parseData(of["keys"], keys))
	case "put_many":
		err = tree.putMany(parseItems(of["items"], keys, values))
	case "remove_many":
		err = tree.removeMany(parseData(of["keys"], keys))
	case "put", "exchange", "insert", "update", "remove", "compare_and_swap":
		value := of.datum("value", values)
		if what == "compare_and_swap" {
			value = of.datum("wanted", values)
		}
		status, old, err := tree.one(what, *of.datum("key", keys), value, of.datum("expected", values))
		if old == nil {
			return status, nil, err
		}
		return status, old, err
	default:
		err = fmt.Errorf("an unknown operation: %s", what)
	}
	return "ok", gives, err
}

func parseData(value any, kind string) (data []any) {
	for _, one := range list(value) {
		data = append(data, parseDatum(kind, one))
	}
	return data
}

func parseItems(value any, keys, values string) []Item[any, any] {
	items := []Item[any, any]{}
	for _, item := range list(value) {
		items = append(items, Item[any, any]{parseDatum(keys, list(item)[0]), parseDatum(values, list(item)[1])})
	}
	return items
}

// compare returns the difference from the table, or nothing.
func (s *runner) compare(of step, status string, gives any) string {
	expected := "ok"
	if is, ok := of["is"].(string); ok {
		expected = is
	}
	if status != expected {
		return fmt.Sprintf("the status is %s", status)
	}
	keys, values := "()", "()"
	if tree, ok := s.trees[of.text("on")]; ok {
		keys, values = tree.kinds()
	}
	wanted, has := of["gives"]
	switch gives := gives.(type) {
	case nil:
		if has {
			return "nothing was returned"
		}
	case *any:
		return differ(values, *gives, parseDatum(values, wanted))
	case []*any:
		return compareMany(gives, list(wanted), values)
	case [][]Change:
		return compareCommits(gives, list(wanted), of.text("key_kind"), of.text("value_kind"))
	case []Item[any, any]:
		if !has {
			return fmt.Sprint("items were returned: ", gives)
		}
		return compareItems(gives, parseItems(wanted, keys, values), keys, values)
	case uint64:
		if float64(gives) != wanted {
			return fmt.Sprint("returned ", gives)
		}
	case string:
		if texts := fmt.Sprint(wanted); texts != gives {
			return "returned " + gives
		}
	default:
		if gives != wanted {
			return fmt.Sprint("returned ", gives)
		}
	}
	return ""
}

func compareMany(gives []*any, wanted []any, kind string) string {
	if len(gives) != len(wanted) {
		return "another number of values"
	}
	for at := range gives {
		object, _ := wanted[at].(map[string]any)
		if _, absent := object["absent"]; absent != (gives[at] == nil) {
			return fmt.Sprintf("value %d: absence", at)
		}
		if gives[at] != nil {
			if problem := differ(kind, *gives[at], parseDatum(kind, wanted[at])); problem != "" {
				return problem
			}
		}
	}
	return ""
}

func compareItems(gives, wanted []Item[any, any], keys, values string) string {
	if len(gives) != len(wanted) {
		return fmt.Sprintf("%d items: %v", len(gives), gives)
	}
	for at := range gives {
		if problem := differ(keys, gives[at].Key, wanted[at].Key) + differ(values, gives[at].Value, wanted[at].Value); problem != "" {
			return fmt.Sprintf("item %d: %s", at, problem)
		}
	}
	return ""
}

// differ compares two data by their bytes, so that every NaN is equal only to itself.
func differ(kind string, one, other any) string {
	of, err := dynamicCodec(kind)
	if err != nil {
		return err.Error()
	}
	a, err := encode(of, nil, &one)
	b, failed := encode(of, nil, &other)
	if err != nil || failed != nil || !bytes.Equal(a, b) {
		return fmt.Sprintf("%v instead of %v (%v, %v)", one, other, err, failed)
	}
	return ""
}

// parseDatum converts a key or a value of the table.
func parseDatum(kind string, value any) any {
	if object, ok := value.(map[string]any); ok {
		if other, ok := object["kind"].(string); ok {
			return parseDatum(other, object["datum"])
		}
		value = strings.Repeat(object["repeat"].(string), int(object["times"].(float64)))
	}
	of, err := dynamicCodec(kind)
	if err != nil {
		panic(err)
	}
	if inner, ok := strings.CutPrefix(kind, "Expiring<"); ok {
		return []any{parseDatum("u64", list(value)[0]), parseDatum(strings.TrimSuffix(inner, ">"), list(value)[1])}
	}
	if inner, ok := strings.CutPrefix(kind, "Option<"); ok {
		return parseOption(strings.TrimSuffix(inner, ">"), value)
	}
	if strings.HasPrefix(kind, "(") && kind != "()" {
		elements := []any{}
		for at, element := range elementKinds(kind) {
			elements = append(elements, parseDatum(element, list(value)[at]))
		}
		return elements
	}
	if strings.HasPrefix(kind, "[") || kind == "bytes" || kind == "postcard" {
		bytes, err := hex.DecodeString(value.(string))
		if err != nil {
			panic(err)
		}
		if kind == "postcard" {
			return Postcard(bytes)
		}
		return bytes
	}
	return parseWord(of.kind, value)
}

func parseOption(kind string, value any) any {
	if value == nil {
		return OptionOf(nil)
	}
	inner := parseDatum(kind, list(value)[0])
	return &inner
}

// elementKinds splits the kind of a tuple.
func elementKinds(kind string) (kinds []string) {
	depth, begin := 0, 1
	inside := strings.TrimSuffix(strings.TrimSuffix(kind, ")"), ",")
	for at := 1; at < len(inside); at++ {
		switch inside[at] {
		case '(', '<', '[':
			depth++
		case ')', '>', ']':
			depth--
		case ',':
			if depth == 0 {
				kinds, begin = append(kinds, inside[begin:at]), at+2
			}
		}
	}
	return append(kinds, inside[begin:])
}

func parseWord(kind string, value any) any {
	switch kind {
	case "()":
		return struct{}{}
	case "bool":
		return value.(bool)
	case "char":
		return Char([]rune(value.(string))[0])
	case "str":
		return value.(string)
	case "json":
		return JSON(value.(string))
	case "f32":
		if bits, ok := strings.CutPrefix(value.(string), "0x"); ok {
			return math.Float32frombits(uint32(parse(strconv.ParseUint(bits, 16, 32))))
		}
		return float32(parse(strconv.ParseFloat(value.(string), 32)))
	case "f64":
		if bits, ok := strings.CutPrefix(value.(string), "0x"); ok {
			return math.Float64frombits(parse(strconv.ParseUint(bits, 16, 64)))
		}
		return parse(strconv.ParseFloat(value.(string), 64))
	}
	return parseInteger(kind, value.(string))
}

func parse[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func parseInteger(kind, digits string) any {
	number, ok := new(big.Int).SetString(digits, 10)
	if !ok {
		panic(digits)
	}
	low := new(big.Int).And(number, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
	high := new(big.Int).Rsh(number, 64)
	return map[string]any{
		"u8": uint8(low), "u16": uint16(low), "u32": uint32(low), "u64": low, "i8": int8(low), "i16": int16(low),
		"i32": int32(low), "i64": int64(low), "u128": Uint128{high.Uint64(), low}, "i128": Int128{high.Int64(), low},
	}[kind]
}

// TestKindsOfElements keeps the reader of the table honest.
func TestKindsOfElements(t *testing.T) {
	for kind, elements := range map[string][]string{
		"(u64,)": {"u64"}, "(str, Option<(u64, [u8; 4])>)": {"str", "Option<(u64, [u8; 4])>"}, "((), str)": {"()", "str"},
	} {
		if got := elementKinds(kind); !slices.Equal(got, elements) {
			t.Errorf("%s: %q", kind, got)
		}
	}
	if len(slices.Collect(maps.Keys(typedTrees))) < 20 {
		t.Error("typed trees are missing")
	}
}
