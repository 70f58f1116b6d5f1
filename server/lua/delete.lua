-- Delete a room and its log. KEYS: index, meta, log, running, ids, now, turns, said. ARGV: id, channel.
local there = redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8])
redis.call('SREM', KEYS[1], ARGV[1])
if there > 0 then redis.pcall('PUBLISH', ARGV[2], 'X') end
return there
