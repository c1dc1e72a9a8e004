# frozen_string_literal: true

require "redis"

# Locks of the redis-lock module for redis-rb. Times are in milliseconds.
class Locks
  def initialize(**where)
    @where = where
    @redis = Redis.new(**where) # sends what fails a second time by itself: TOKEN makes that safe
  end

  # The fencing token, or nil when it was not granted in time.
  def acquire(key, owner, wait, lease)
    # Without a timeout above the slices of 2 s, what is not answered within 1 s is sent twice.
    own = Redis.new(**@where, timeout: 5, reconnect_attempts: 0)
    ends = now + wait
    loop do
      block = (ends - now).ceil.clamp(1, 2_000)
      token = own.call("LOCK.ACQUIRE", key, owner, "PX", lease, "BLOCK", block, "ONCE")
      return token if token || now >= ends
    rescue Redis::BaseConnectionError
      raise if now >= ends

      sleep 0.05 # then again: ONCE makes that safe
    end
  ensure
    own&.close
  end

  def renew(key, owner, token, lease) # false: it is lost, stop working
    @redis.call("LOCK.RENEW", key, owner, "PX", lease, "TOKEN", token) == 1
  end

  def release(key, owner, token) # false: it was not held any more
    @redis.call("LOCK.RELEASE", key, owner, "ALL", "TOKEN", token) == 1
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)
end
