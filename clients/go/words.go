package redislock

import (
	"encoding"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"time"
)

// wordOf is an argument of a command as go-redis writes it. (rueidis takes strings only.)
func wordOf(argument any) (string, error) {
	switch argument := argument.(type) {
	case nil:
		return "", nil
	case string:
		return argument, nil
	case []byte:
		return string(argument), nil
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, uintptr:
		return fmt.Sprint(argument), nil
	case float32:
		return strconv.FormatFloat(float64(argument), 'f', -1, 64), nil
	case float64:
		return strconv.FormatFloat(argument, 'f', -1, 64), nil
	case bool:
		if argument {
			return "1", nil
		}
		return "0", nil
	case time.Time:
		return argument.Format(time.RFC3339Nano), nil
	case time.Duration:
		return strconv.FormatInt(argument.Nanoseconds(), 10), nil
	case *string, *int, *int8, *int16, *int32, *int64, *uint, *uint8, *uint16, *uint32, *uint64, *uintptr,
		*float32, *float64, *bool, *time.Time, *time.Duration:
		pointer := reflect.ValueOf(argument)
		if pointer.IsNil() {
			pointer = reflect.New(pointer.Type().Elem())
		}
		return wordOf(pointer.Elem().Interface())
	case encoding.BinaryMarshaler:
		bytes, err := argument.MarshalBinary()
		if err != nil {
			return "", fmt.Errorf("%w: %T: %w", ErrUsage, argument, err)
		}
		return string(bytes), nil
	case net.IP:
		return string(argument), nil
	}
	return "", fmt.Errorf("%w: there is no rule to write a %T: convert it, or implement encoding.BinaryMarshaler",
		ErrUsage, argument)
}
