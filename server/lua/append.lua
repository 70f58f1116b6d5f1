-- Append one event to a room's log, atomically with all that follows from it.
-- KEYS: meta, log, key, running, ids, now, turns, said
-- ARGV: run, durable, fresh epoch, expected epoch or '', body, fingerprint, answer,
--       key's life in ms, history length, channel, op, subject, value, message that this one answers,
--       '1' where only what the key began may be answered
-- Answers {code} when refused, else {'ok', epoch, offset, ts, answer}.
local meta, log, key, running, ids, now, turns, said = unpack(KEYS)
local body, fingerprint, answer = ARGV[5], ARGV[6], ARGV[7]
local op, subject, value = ARGV[11], ARGV[12], ARGV[13]

local expected = ARGV[4]
if expected ~= '' then
  local found = redis.call('HGET', meta, 'epoch')
  if found and found ~= expected then return {'stale'} end
end
local room = room_of(meta, ARGV[1], ARGV[2], ARGV[3])
if not room then return {'unknown_room'} end
local epoch = room[1]

-- A key of another epoch was used in a log that is gone: it answers for nothing here.
local first = redis.call('HMGET', key, 'fingerprint', 'epoch', 'offset', 'ts', 'answer')
if first[1] and first[2] == epoch then
  if first[1] ~= fingerprint then return {'key_conflict'} end
  return {'ok', first[2], tonumber(first[3]), tonumber(first[4]), first[5]}
end
if ARGV[15] ~= '' then return {'full'} end

-- What an event is about must be there before it is stored.
if ARGV[14] ~= '' and redis.call('HEXISTS', ids, ARGV[14]) == 0 then return {'unknown_message'} end
if op == 'exit' and redis.call('HEXISTS', running, subject) == 0 then return {'unknown_exec'} end
if op == 'finish' and redis.call('HEXISTS', turns, subject) == 0 then return {'unknown_turn'} end
if op == 'edit' or op == 'delete' or op == 'react' then
  local at = redis.call('HGET', ids, subject)
  local entry = at and redis.call('XRANGE', log, at .. '-0', at .. '-0')[1]
  local patch = redis.call('HGET', now, subject)
  if not entry or patch == 'deleted' then return {'unknown_message'} end
  if op ~= 'react' and cjson.decode(entry[2][4]).by.id ~= value then return {'forbidden'} end
end

local time = redis.call('TIME')
local ts = math.max(tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000), tonumber(room[3]))
local offset = tonumber(room[2]) + 1
local stamp = string.format('%.0f', ts)

if op == 'clear' then redis.call('DEL', log, ids, now) end
redis.call('XADD', log, 'MAXLEN', '~', ARGV[9], offset .. '-0', 't', stamp, 'e', body)
redis.call('HSET', meta, 'offset', offset, 'ts', stamp)
redis.call('HSET', key, 'fingerprint', fingerprint, 'epoch', epoch, 'offset', offset, 'ts', stamp, 'answer', answer)
redis.call('PEXPIRE', key, ARGV[8])
if op == 'start' then redis.call('HSET', running, subject, offset .. ' ' .. stamp .. ' ' .. value)
elseif op == 'exit' then redis.call('HDEL', running, subject)
elseif op == 'ask' then redis.call('HSET', turns, subject, value)
elseif op == 'finish' then redis.call('HDEL', turns, subject); redis.call('HDEL', said, subject)
elseif op == 'policy' then redis.call('HSET', meta, 'approval', value)
elseif op == 'message' then
  redis.call('HSET', ids, subject, offset)
  if value ~= '' then redis.call('HDEL', said, value) end -- a turn's words are a message now
elseif op == 'edit' then redis.call('HSET', now, subject, stamp .. ' ' .. body)
elseif op == 'delete' then
  redis.call('HSET', now, subject, 'deleted')
elseif op == 'update' then redis.call('HSET', meta, 'name', subject, 'description', value) end

-- What was trimmed from the log needs no index any more; rarely, since it walks all of it.
if offset % 1024 == 0 then
  local oldest = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1][1]
  local from = tonumber(string.match(oldest, '^%d+'))
  local all = redis.call('HGETALL', ids)
  for i = 1, #all, 2 do
    if tonumber(all[i + 1]) < from then redis.call('HDEL', ids, all[i]); redis.call('HDEL', now, all[i]) end
  end
end
-- Delivery must not undo what is stored: a node that may not publish still has its log.
redis.pcall('PUBLISH', ARGV[10], 'E' .. epoch .. ' ' .. offset .. ' ' .. stamp .. ' ' .. body)
return {'ok', epoch, offset, ts, answer}
