#!lua flags=no-writes
-- For redis_exporter: redis_exporter -script redis-lock.lua. The first line lets it run during CLIENT PAUSE WRITE.
-- Returns every number of INFO lock, under a name by Prometheus's rules: lock_oldest_wait_ms is lock_oldest_wait_seconds,
-- and a counter ends with _total. A field of the form name:part=1,other=2 becomes name_part and name_other; so have
-- histograms the buckets name_le_0.02. Only the gauges are listed here. Without the module nothing is returned.
local gauges = {}
for name in string.gmatch([[
    waiters keys_waited places places_kept sessions session_holds session_waits grants_tracked windows_open tickets
    ticket_places max_waiters max_tickets max_tracked max_session_holds eviction_risk out_of_memory keys_withheld
    waits_kept tickets_kept wait_bytes max_wait_bytes users_with_usage finals places_used_percent tickets_used_percent
    wait_bytes_used_percent
]], '%S+') do
    for _, kind in ipairs({'lock_', 'lock_sem_', 'lock_latch_'}) do
        gauges[kind .. name] = true
    end
end
local values = {}
local function add(name, value)
    local seconds, is_time = string.gsub(name, '_ms', '_seconds')
    if is_time > 0 then
        local bound = string.match(name, '_le_(%d+)$')
        if bound then
            seconds = string.gsub(seconds, '%d+$', bound / 1000)
        elseif not string.find(name, '_le_inf$') and not string.find(name, '_count$') then
            value = tostring(value / 1000)
        end
        name = seconds
    elseif not gauges[name] then
        name = name .. '_total'
    end
    values[#values + 1] = name
    values[#values + 1] = value
end
for name, value in string.gmatch(redis.call('INFO', 'lock'), '(lock_[%w_]+):([^\r\n]*)') do
    if string.match(value, '^%d+$') then
        add(name, value)
    else
        for part, number in string.gmatch(value, '([%w_]+)=(%d+)') do
            add(name .. '_' .. part, number)
        end
    end
end
return values
