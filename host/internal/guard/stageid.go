package guard

// FirstStageID and LastStageID are the first and the last of the users, and of the groups, that a host which runs as root gives
// to stages: the range that systemd keeps for DynamicUser, in which no account is.
const (
	FirstStageID = 61184
	LastStageID  = 65519
)

// IsStageID reports whether a user or a group is one that a host which runs as root gives to stages.
func IsStageID(id int) bool { return FirstStageID <= id && id <= LastStageID }
