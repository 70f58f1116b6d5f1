-- Create a room. KEYS: meta, index. ARGV: id, epoch, run, name, description, owner.
-- Answers 0 where the id is taken, else the time of creation in ms; sent again, the same.
local there = redis.call('HMGET', KEYS[1], 'epoch', 'created')
if there[1] then return there[1] == ARGV[2] and tonumber(there[2]) or 0 end
local time = redis.call('TIME')
local ts = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'run', ARGV[3], 'name', ARGV[4], 'description', ARGV[5],
  'owner', ARGV[6], 'created', string.format('%.0f', ts), 'offset', 0, 'ts', string.format('%.0f', ts))
redis.call('SADD', KEYS[2], ARGV[1])
return ts
