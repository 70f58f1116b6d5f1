-- Epoch, position and entries of a room in one look, for a join.
-- KEYS: meta, log, running
-- ARGV: run, durable, fresh epoch, since epoch or '', since offset, page length, most to resume
-- Answers {} for an unknown room, else {epoch, offset, oldest, resumed, entries, running, owner}.
local meta, log, running = unpack(KEYS)
local room = room_of(meta, ARGV[1], ARGV[2], ARGV[3])
if not room then return {} end
local offset = tonumber(room[2])
local head = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
local oldest = head and tonumber(string.match(head[1], '^%d+')) or offset + 1
local since = tonumber(ARGV[5])
local resumed = ARGV[4] == room[1] and since <= offset and since >= oldest - 1
  and offset - since <= tonumber(ARGV[7])
local entries = {}
if resumed then
  entries = redis.call('XRANGE', log, '(' .. since .. '-0', '+')
else
  local newest = redis.call('XREVRANGE', log, '+', '-', 'COUNT', ARGV[6])
  for i = #newest, 1, -1 do entries[#entries + 1] = newest[i] end
end
local owner = redis.call('HGET', meta, 'owner')
return {room[1], offset, oldest, resumed and 1 or 0, entries, redis.call('HGETALL', running), owner or ''}
