-- Shared by every script that reads or writes a room's log: which epoch holds now.
-- A log that a Redis node brought back after losing its end must not look like the old one, so
-- another run id starts a new epoch, unless the earlier run is known to have been durable.
local function room_of(meta, run, durable, fresh)
  local room = redis.call('HMGET', meta, 'epoch', 'offset', 'ts', 'run')
  if not room[1] then return nil end
  if room[4] ~= run then
    local kept = false
    for id in string.gmatch(durable, '[^,]+') do kept = kept or id == room[4] end
    if not kept then
      room[1] = fresh
      redis.call('HSET', meta, 'epoch', fresh)
    end
    redis.call('HSET', meta, 'run', run)
  end
  return room
end
