package changes

import "testing"

func TestAChangeReachesThoseThatWaitForItsKeyAlone(t *testing.T) {
	var c Changes
	a, stopA := c.Wait("a", "all")
	b, stopB := c.Wait("b")
	c.Happened("a")
	c.Happened("all", "a")
	if len(a) != 1 || len(b) != 0 {
		t.Fatalf("a has %d values, b %d", len(a), len(b))
	}
	<-a
	c.Happened("all")
	if len(a) != 1 {
		t.Error("the second key wakes it not")
	}
	stopA()
	stopB()
	<-a
	c.Happened("a", "b", "all")
	if len(a)+len(b)+len(c.waiting) != 0 {
		t.Errorf("after the end: %d, %d, %v", len(a), len(b), c.waiting)
	}
}
