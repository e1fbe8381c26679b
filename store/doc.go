// Package store keeps what package fleet defines in PostgreSQL, through pgx:
// connections, transactions, the database's clock, queries and writes. It
// decides nothing: whoever judges is package devices, and every function here
// reads or writes what it is told, set-based, with explicit column lists.
// Functions take a Querier, so that the caller says in which transaction they
// run; those that need one take a pgx.Tx.
package store
