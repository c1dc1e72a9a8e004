# frozen_string_literal: true

# The agent of redis-rb's tickets: the orders of driver/ticket_agent.rs, each in a thread.

require_relative "../../../examples/redis-rb/tickets"

host, port, _, shard = ARGV
where = shard ? { shard: shard, nodes: ["redis://#{host}:#{port}"] } : { host: host, port: port.to_i }
tickets = Tickets.new(**where)
running = {}

orders = {
  "acquire" => lambda do |key, owner, wait, lease|
    token = tickets.acquire(key, owner, wait.to_i, lease)
    token ? "token #{token}" : "nil"
  end,
  "renew" => ->(*words) { tickets.renew(*words) ? "1" : "0" },
  "release" => ->(*words) { tickets.release(*words) ? "1" : "0" }
}

$stdout.sync = true
Thread.report_on_exception = false
$stdout.write("ready\n")
$stdin.each_line(chomp: true) do |line|
  id, order, *words = line.split
  if order == "cancel"
    running[words[0]].kill.join
    $stdout.write("#{words[0]} cancelled\n")
    next
  end
  running[id] = Thread.new do
    $stdout.write("#{id} #{orders.fetch(order).call(*words)}\n")
  rescue Redis::BaseError => e
    $stdout.write("#{id} error #{e.message.tr("\n", ' ')}\n")
  end
end
