-- A page of a room's log, ascending, with one entry more than asked for to tell whether there is more.
-- KEYS: meta, log
-- ARGV: run, durable, fresh epoch, 'before' or 'after', offset or '', length
-- Answers {} for an unknown room, else {epoch, offset, entries}.
local room = room_of(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
if not room then return {} end
local count = tonumber(ARGV[6]) + 1
local entries = {}
if ARGV[4] == 'after' then
  entries = redis.call('XRANGE', KEYS[2], '(' .. ARGV[5] .. '-0', '+', 'COUNT', count)
elseif ARGV[5] ~= '0' then -- nothing is before 0, and Redis refuses to look there
  local from = ARGV[5] == '' and '+' or '(' .. ARGV[5] .. '-0'
  local newest = redis.call('XREVRANGE', KEYS[2], from, '-', 'COUNT', count)
  for i = #newest, 1, -1 do entries[#entries + 1] = newest[i] end
end
return {room[1], tonumber(room[2]), entries}
