package localusers

import "errors"

var (
	// ErrMechanism says that no verifier exists for a mechanism.
	ErrMechanism = errors.New("not a SCRAM mechanism")
	// ErrIterations says that a number of iterations is out of bounds.
	ErrIterations = errors.New("iterations must be 4096 to 1048576")
	// ErrToken says that a client's token is not of the mechanism's form.
	ErrToken = errors.New("the client's token is not understood")
	// ErrCredentials says that there is no such user, or that the password is
	// another.
	ErrCredentials = errors.New("no such user, or another password")
	// ErrOtherIdentity says that a user wants to act as another one.
	ErrOtherIdentity = errors.New("the authorization id is not the user's own name")
	// ErrFinished says that a token came after the login's end.
	ErrFinished = errors.New("the login has ended")
	// ErrFile is wrapped by every error about what a users file holds.
	ErrFile = errors.New("users file")
)
