package pgtest

import "syscall"

// roomInMemory is how much a memory file system must have free before a server
// is put there: tests that fill tables with a million rows fit too.
const roomInMemory = 8 << 30 // bytes

// memoryParent returns a folder in memory with room for a server, "" for none.
// Cloning a database is some 300 small files, six times faster there.
func memoryParent() string {
	const shm = "/dev/shm"
	var st syscall.Statfs_t
	if err := syscall.Statfs(shm, &st); err != nil || st.Bavail*uint64(st.Bsize) < roomInMemory {
		return ""
	}
	if err := syscall.Access(shm, 0o3); err != nil { // write and search
		return ""
	}
	return shm
}
