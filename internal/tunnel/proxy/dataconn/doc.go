// Package dataconn implements the data connections between both proxies: TLS with few system calls, and without buffers
// while a stream is idle.
//
// It exists for speed: a tunnel must be faster than chisel, frp and ssh port forwarding, and must cost less CPU (see
// docs/performance.md). A tls.Conn and io.Copy would need about 550 lines less. With them an idle stream takes 115 KiB
// of both proxies instead of 50 (BenchmarkIdleStreams), and bulk has 12 percent less throughput for 8 to 15 percent more
// CPU time (BenchmarkStream). The package has two functions, Accept and Dial; their callers see only a Conn.
//
//	conn.go     Conn: frames, and copies from and to plain connections
//	records.go  the layer below TLS: batches of records, one system call for each
//	reader.go   reads from a connection with a borrowed buffer
//	poll.go     polls for a moment where a request follows an answer closely
//	yield_linux.go, yield_other.go  how it gives the processor to other threads while it polls
package dataconn
