# frozen_string_literal: true

require "redis"

# Locks of the redis-lock module for redis-rb. Times are in milliseconds.
class Locks
  STARTED = (Time.now.to_r * 1_000) - Process.clock_gettime(Process::CLOCK_MONOTONIC, :millisecond)
  def initialize(**where)
    @where = where
    @redis = Redis.new(**where) # sends what fails a second time by itself: TOKEN makes that safe
  end

  # The fencing token, or nil when it was not granted in time.
  def acquire(key, owner, wait, lease)
    # Without a timeout above the slices of 2 s, what is not answered within 1 s is sent twice.
    own = Redis.new(**@where, timeout: 5, reconnect_attempts: 0)
    ends = now + wait
    number = ((STARTED + now) * 1_000).to_i # it rises, over a restart too
    lost = 0
    loop do
      block = (ends - now).ceil.clamp(1, 2_000)
      lost += 1
      token = own.call("LOCK.ACQUIRE", key, owner, "PX", lease, "BLOCK", block, "ONCE", "SEQ", number)
      lost = token ? 0 : lost - 1
      return token if token || now >= ends
    rescue Redis::BaseConnectionError
      raise if now >= ends

      sleep 0.05 # then again: ONCE makes that safe
    end
  ensure
    own.call("LOCK.RELEASE", key, owner, "FINAL", number) if lost.positive? # what is served late grants nothing
    own.close
  end

  # False: it is lost, stop working; and it was not held any more.
  def renew(key, owner, token, lease) = @redis.call("LOCK.RENEW", key, owner, "PX", lease, "TOKEN", token) == 1
  def release(key, owner, token) = @redis.call("LOCK.RELEASE", key, owner, "ALL", "TOKEN", token) == 1
  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)
end
