package cli

// What people type who know other programs, and what does it here.
var (
	meantCommands = map[string]string{
		"start": `"catena serve"`, "run": `"catena serve"`, "up": `"catena serve"`, "server": `"catena serve"`,
		"stop":    "Ctrl-C where catena serve runs, or SIGTERM to its process",
		"down":    "Ctrl-C where catena serve runs, or SIGTERM to its process",
		"restart": `"catena swap STAGE" for a stage, "catena upgrade" for the host itself`,
		"canary":  `"catena swap STAGE --canary 5%"`, "promote": `"catena swap STAGE --promote"`,
		"rollback": `"catena swap STAGE --rollback"`,
		"list":     `"catena status"`, "ps": `"catena status"`, "health": `"catena status"`, "top": `"catena status --watch"`,
		"dashboard": `"catena ui"`, "init": `"catena config init"`, "validate": `"catena config validate"`,
		"backup": `"catena snapshot save"`, "restore": `"catena snapshot restore"`,
		"check": `"catena stage check"`, "new": `"catena stage new"`,
		"get": "kubectl", "apply": "kubectl", "create": "kubectl", "describe": "kubectl", "delete": "kubectl", "edit": "kubectl",
	}
	meantFlags = map[string]string{
		"port": "--secure-port", "p": "--secure-port", "f": "--config", "file": "--config",
		"data": "--data-dir", "d": "--data-dir",
		"etcd-servers": "--set store.endpoints=URL", "etcd": "--set store.endpoints=URL",
		"advertise-address": "--set apiserver.advertise-address=ADDRESS",
		"log-level":         "--set log.level=LEVEL", "verbose": "--set log.level=debug", "debug": "--set log.level=debug",
		"json": "-o json", "watch": "--watch",
	}
)
