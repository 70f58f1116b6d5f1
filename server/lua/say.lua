-- Keep words of an open turn, before they are shown. KEYS: turns, said
-- ARGV: turn, bytes of it that are kept already, words, life in s
-- Answers 1 where they are kept (sent again, still once), 0 where the turn is over or its room
-- gone, -1 where not as much as that is kept any more.
local turns, said = unpack(KEYS)
local turn, at = ARGV[1], tonumber(ARGV[2])
if redis.call('HEXISTS', turns, turn) == 0 then return 0 end
local before = redis.call('HGET', said, turn) or ''
if #before < at then return -1 end
redis.call('HSET', said, turn, string.sub(before, 1, at) .. ARGV[3])
redis.call('EXPIRE', said, ARGV[4])
return 1
