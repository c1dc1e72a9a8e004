# frozen_string_literal: true

# The agent of redis-rb: reads orders, writes answers, as driver/agent.rs lists them.

require_relative "../../../examples/redis-rb/redis_lock"

host, port = ARGV
locks = Locks.new(host: host, port: port.to_i)

token_or_nil = ->(token) { token ? "token #{token}" : "nil" }
orders = {
  "acquire" => ->(key, owner, wait, lease) { token_or_nil.call(locks.acquire(key, owner, wait.to_i, lease)) },
  "renew" => ->(*words) { locks.renew(*words) ? "1" : "0" },
  "release" => ->(*words) { locks.release(*words) ? "1" : "0" }
}

$stdout.sync = true
puts "ready"
$stdin.each_line(chomp: true) do |line|
  order, *words = line.split
  break if order == "quit"

  begin
    puts orders.fetch(order).call(*words)
  rescue Redis::BaseError => e
    puts "error #{e.message.tr("\n", ' ')}"
  end
end
