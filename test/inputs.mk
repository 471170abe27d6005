# What a target depends on that "make test" leaves out while that is what it was when the target passed last (test/tested.txt), besides
# what all tests depend on. A path that is missing here lets a fault in until somebody runs "make test-all", which leaves out nothing.
# NEEDS_NAME fails on a machine on which a part of the target does nothing: what passes there counts for nothing.

# The files of a release.
INPUTS_packaging := packaging configs LICENSE go.mod go.sum test/system/staticpod_test.go test/system/staticpodimage_test.go

# Stages of others, in modules of their own, and the tutorial.
INPUTS_thirdparty := sdk internal host/internal/scaffold host/internal/stagecheck host/internal/dev docs/tutorial.md test/thirdparty test/internal/documents go.mod go.sum

# Stages in TypeScript and Python.
INPUTS_languages := sdk/stagev1 internal/http1 host/internal/process host/internal/stagecheck examples/node-hello examples/python-hello
NEEDS_languages := [ -e examples/node-hello/build/stage.js ] && /usr/bin/python3 -c 'import grpc, google.protobuf'

# Stages of another release of Kubernetes: conformance, plans, moves.
INPUTS_other-release := go.mod go.sum versions plugins sdk internal host/internal/front host/internal/relay host/internal/supervisor host/internal/generation host/internal/canary \
	host/internal/upgrade host/internal/trial host/internal/process test/conformance test/chaos test/internal/cluster \
	test/system/canary_test.go test/system/load_test.go test/system/upgrade_test.go test/system/upgradesdocument_test.go test/system/upgradeversion_test.go \
	test/internal/documents docs/upgrades.md

# The page about the chain.
INPUTS_browser := host/internal/dashboard host/internal/admin test/browser
NEEDS_browser := [ -e test/browser/node_modules/axe-core ] && { command -v chromium || command -v chromium-browser || command -v google-chrome; }
