// Package race lets writers race conditional appends for the places of one
// partition and checks the log against what each was told.
//
// The writers send every attempt once. What they were told is a list of
// attempts, what happened is the partition's log read from the brokers, and
// Check compares the two; it trusts neither proxy nor writer. It checks one
// partition that nobody else writes to, and no throughput.
package race
