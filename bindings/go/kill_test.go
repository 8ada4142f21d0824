package bristlecone

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// The name of the variable that makes a test program a writer.
const writerVariable = "BRISTLECONE_GO_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerVariable); path != "" {
		writeUntilKilled(path)
	}
	os.Exit(m.Run())
}

// writeUntilKilled reports each number once its writes have returned.
func writeUntilKilled(path string) {
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	pool, err := Open(path, Options{Create: true, MaxBytes: 256 << 20})
	must(err)
	words, err := OpenTree[uint64, uint64](pool, "words")
	must(err)
	texts, err := OpenTree[string, namedPair](pool, "texts")
	must(err)
	for n := uint64(0); ; n++ {
		must(words.Put(n, ^n))
		must(texts.Put(fmt.Sprint("item ", n), namedPair{"x", n}))
		fmt.Println(n)
	}
}

func TestAKilledWriterLosesNothing(t *testing.T) {
	for round := range uint64(3) {
		path := scratchPath(t)
		writer := exec.Command(os.Args[0])
		writer.Env = append(os.Environ(), writerVariable+"="+path)
		output, err := writer.StdoutPipe()
		ok(t, err)
		ok(t, writer.Start())
		acknowledged, lines := uint64(0), bufio.NewScanner(output)
		for lines.Scan() {
			number, err := strconv.ParseUint(lines.Text(), 10, 64)
			if err != nil {
				break
			}
			if acknowledged = number + 1; acknowledged == 2000+777*round {
				ok(t, writer.Process.Kill())
			}
		}
		if err := writer.Wait(); err == nil || acknowledged < 2000 {
			t.Fatal(err, acknowledged)
		}
		verifyWritten(t, path, acknowledged)
	}
}

func verifyWritten(t *testing.T, path string, acknowledged uint64) {
	pool, err := Open(path, Options{})
	ok(t, err)
	defer pool.Close()
	if info, err := pool.Info(); err != nil || info.WasClean {
		t.Errorf("%+v %v", info, err)
	}
	words, texts := open[uint64, uint64](t, pool, "words"), open[string, namedPair](t, pool, "texts")
	for n := range acknowledged {
		if value, is, err := words.Get(n); value != ^n || !is || err != nil {
			t.Fatal(n, value, is, err)
		}
		if value, is, err := texts.Get(fmt.Sprint("item ", n)); value != (namedPair{"x", n}) || !is || err != nil {
			t.Fatal(n, value, is, err)
		}
	}
	if items, err := words.Len(); err != nil || items < acknowledged || items > acknowledged+1 {
		t.Error(items, acknowledged, err)
	}
	for _, check := range []func() ([]Issue, error){pool.Check, words.Check, texts.Check} {
		if found, err := check(); err != nil || len(found) > 0 {
			t.Error(found, err)
		}
	}
}
