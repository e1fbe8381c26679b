// Package pgtest gives tests a real PostgreSQL: one private server for a test
// binary, started by the first test that asks, and one database for a test,
// dropped when the test ends. Migrated schemas come fast by Template, which
// prepares a database once and clones it for each test.
//
// With MUSTER_TEST_POSTGRES_URL set, databases are created on that server
// instead; its role needs CREATEDB. The private server lies in /dev/shm where
// there is room (8 GiB free), else in /tmp. It is not for production code, and the
// private server is tuned to be lost (fsync=off): figures of durability
// measured on it mean nothing.
//
// A package that uses it says
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// which ends the server and removes its directory. Without it the server still
// dies with the test binary, and its directory is removed by the next start.
package pgtest
