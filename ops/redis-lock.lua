-- For redis_exporter: redis_exporter -script redis-lock.lua
-- Returns every number of INFO lock with its name. No field is listed here, so a new one needs no change.
-- A field of the form name:part=1,other=2 becomes name_part and name_other; so have histograms the buckets name_le_20. Without the module nothing is returned.
local values = {}
local function add(name, value)
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
