// Package config turns a YAML file, or the flags of the command line, into the
// settings of one offsetproxy process.
//
// Both go through a Document, whose leaves remember where they stand in the
// file, so that whatever is wrong is reported with its line, column and an
// excerpt, all of it at once. Unknown and duplicate keys are errors: a key
// that is misspelt must not mean a rule that is not in force.
//
// The package reads no environment, opens nothing but the file it is given and
// does not watch it.
package config
