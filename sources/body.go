package sources

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
)

// ErrTooLarge says that an answer is beyond the limit of its client.
var ErrTooLarge = errors.New("the answer is beyond the limit")

const peekLimit = 64 << 10

// body limits what is read of an answer and tells its end once: with the error
// that ended it, or nil when it was read to its end or closed before.
type body struct {
	io.ReadCloser
	head  bytes.Reader
	left  int64
	limit int64
	ended func(error)
	once  sync.Once
	err   error
}

// peek reads up to n bytes ahead; Read gives them again. An error met is given
// by Read after them.
func (b *body) peek(n int64) []byte {
	head, err := io.ReadAll(io.LimitReader(b.ReadCloser, n))
	b.head.Reset(head)
	b.err = err
	return head
}

func (b *body) Read(p []byte) (int, error) {
	if b.head.Len() > 0 {
		n, err := b.head.Read(p)
		b.left -= int64(n)
		return n, err
	}
	if b.err != nil {
		b.end(b.err)
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		b.err = fmt.Errorf("%w of %d bytes", ErrTooLarge, b.limit)
		b.end(b.err)
		return 0, b.err
	}
	if err != nil && err != io.EOF {
		b.end(err)
	} else if err == io.EOF {
		b.end(nil)
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.end(nil)
	return err
}

func (b *body) end(err error) {
	b.once.Do(func() {
		if b.ended != nil {
			b.ended(err)
		}
	})
}
