//go:build !linux

package stagecheck

import "errors"

func usageOf(int) (usage, error) { return usage{}, errors.ErrUnsupported }
