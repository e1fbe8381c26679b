package world

import (
	"container/heap"
	"time"
)

// timer says that a row is due. One whose row has another due time by then is
// out of date and is dropped.
type timer struct {
	at    time.Time
	table anyTable
	key   string
	order uint64
}

// timers is a heap of timers, the earliest first, equal ones as they came.
type timers struct {
	queue timerQueue
	count uint64
}

func (t *timers) add(next timer) {
	t.count++
	next.order = t.count
	heap.Push(&t.queue, next)
}

// next gives when the earliest timer is due, zero if there is none.
func (t *timers) next() time.Time {
	if len(t.queue) == 0 {
		return time.Time{}
	}
	return t.queue[0].at
}

func (t *timers) take() timer { return heap.Pop(&t.queue).(timer) }

type timerQueue []timer

func (q timerQueue) Len() int { return len(q) }
func (q timerQueue) Less(i, j int) bool {
	if !q[i].at.Equal(q[j].at) {
		return q[i].at.Before(q[j].at)
	}
	return q[i].order < q[j].order
}
func (q timerQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *timerQueue) Push(x any)   { *q = append(*q, x.(timer)) }
func (q *timerQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
