# frozen_string_literal: true

require "securerandom"
require_relative "redis_lock" # its renew and release

# Locks of the redis-lock module for redis-rb, with waits by ticket. Times are in milliseconds.
class Tickets < Locks
  # `shard`, in a cluster: the hash tag of the keys, "{invoices}".
  def initialize(shard: nil, **where)
    require "redis-clustering" if shard
    @redis, own = Array.new(2) { (shard ? Redis::Cluster : Redis).new(**where) }
    @channel = "lock:#{shard}#{SecureRandom.hex(8)}"
    @open = {} # the messages for each wait, by its tag
    Thread.new { listen(own, *(shard ? %i[ssubscribe smessage] : %i[subscribe message])) }
  end

  # The fencing token, or nil when it was not granted in time. A thread that is ended gives up.
  def acquire(key, owner, wait, lease)
    ends = now + wait
    tag = SecureRandom.hex(8)
    number = ((STARTED + now) * 1_000).to_i # it rises, over a restart too
    messages = @open[tag] = Thread::Queue.new # before the request: the message may be quicker than the reply
    word = value = nil
    until word == "token" || (word == "granted" && proven?(key, owner, value, lease))
      left = [ends - now, 0].max
      word, value = ask(key, owner, lease, left, tag, number) || messages.pop(timeout: (left / 1_000) + 1)&.split
      return if word.nil? || word == "timeout"
      raise Redis::CommandError, value if word == "failed"
    end
    token = Integer(value)
  ensure # the release withdraws the ticket or ends a grant, and what is still to be served grants nothing
    @open.delete(tag)
    @redis.call("LOCK.RELEASE", key, owner, "FINAL", number) unless token
  end

  private

  def ask(key, owner, lease, left, tag, number)
    words = [key, owner, "PX", lease, "BLOCK", left.ceil + 1, "NOTIFY", @channel, tag, "ONCE", "SEQ", number]
    token = @redis.call("LOCK.ACQUIRE", *words)
    ["token", token] if token.is_a?(Integer)
  rescue Redis::CommandError => e
    raise unless e.message.start_with?("NOSUBSCRIBER") # else the next subscription asks
  rescue Redis::BaseError # of the network, or of the client's view of the cluster
    raise if left.zero?

    sleep 0.05
    ["again"] # ONCE makes that safe
  end

  def proven?(...)
    renew(...)
  rescue Redis::BaseError
    false # then the lock is asked for again
  end

  def listen(own, subscribe, message)
    own.exists?(@channel) if subscribe == :ssubscribe # a command by which the client learns where the slot is
    own.send(subscribe, @channel) do |on|
      on.send(subscribe) { @open.values.each { |messages| messages << "again" } } # messages may have been lost
      on.send(message) { |_, text| @open[text.rpartition(" ").last]&.push(text) }
    end
    raise Redis::SubscriptionError # a subscription of a shard channel ends when its slot moves
  rescue Redis::BaseError, RedisClient::Error # the latter, when the connection is lost
    sleep 0.05
    retry
  end
end
