"""Runs sushy-tools' emulator with its fake driver as a few BMCs, for redfish-up.sh.

Each address of 127/8 is a BMC of its own with one System. What is added to the
emulator: the listeners with TLS, a power delay that is known, the inventory that
its fake driver lacks, a journal of what was asked and answered. Its answers and
its errors are its own.

The last of the BMCs may be power shelves, which the emulator has none of: they
have no System, and their Chassis has a power and a reset.

  redfish-emulator.py CONFIG    a JSON file, see redfish-up.sh
"""
import json
import logging
import os
import random
import signal
import socket
import ssl
import sys
import threading
import time
import types

peer = json.load(open(sys.argv[1]))
count = len(peer['addresses'])
shelves = range(count - peer['shelves'], count)
losing = [int(n) - 1 for n in peer['losing'].split(',') if n]  # the answers to resets
config = os.path.join(peer['dir'], 'emulator.conf')
uuids = ['5ed00000-0000-4000-8000-%012d' % i for i in range(1, count + 1)]
with open(config, 'w') as out:
    for name, value in {
        'SUSHY_EMULATOR_FAKE_DRIVER': True,
        'SUSHY_EMULATOR_STATE_DIR': os.path.join(peer['dir'], 'state'),
        'SUSHY_EMULATOR_AUTH_FILE': os.path.join(peer['dir'], 'htpasswd'),
        'SUSHY_EMULATOR_FEATURE_SET': 'full',
        'SUSHY_EMULATOR_FAKE_SYSTEMS': [
            {'uuid': u, 'name': 'node-%04d' % i, 'power_state': peer['power'], 'external_notifier': False,
             'nics': [{'mac': '02:5e:d0:00:%02x:01' % i, 'ip': '192.0.2.1'}]} for i, u in enumerate(uuids, 1)],
        'SUSHY_EMULATOR_CHASSIS': [
            {'Id': 'Chassis%d' % i, 'Name': 'chassis-%04d' % i, 'UUID': u.replace('5ed0', 'c4a5')} for i, u in enumerate(uuids, 1)],
        'SUSHY_EMULATOR_STORAGE': {u: [{
            'Id': 'nvme', 'Name': 'NVMe', 'Drives': ['nvme0'],
            'StorageControllers': [{'MemberId': '0', 'Name': 'controller', 'SpeedGbps': 32}]}] for u in uuids},
        'SUSHY_EMULATOR_DRIVES': {(u, 'nvme'): [{'Id': 'nvme0', 'Name': 'NVMe 0', 'CapacityBytes': 960 * 10**9, 'Protocol': 'NVMe'}] for u in uuids},
        'SUSHY_EMULATOR_VOLUMES': {(u, 'nvme'): [] for u in uuids},
    }.items():
        out.write('%s = %r\n' % (name, value))
os.environ['SUSHY_EMULATOR_CONFIG'] = config
logging.basicConfig(level=logging.INFO, format='%(asctime)s %(levelname)s %(name)s %(message)s')
logging.getLogger('werkzeug').setLevel(logging.WARNING)

import bcrypt  # noqa: E402
import flask  # noqa: E402
from werkzeug import serving  # noqa: E402

# Cost 4: it is checked at each request.
with open(os.path.join(peer['dir'], 'htpasswd'), 'w') as out:
    out.write('admin:%s\n' % bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode())

from sushy_tools import error  # noqa: E402
from sushy_tools.emulator import api_utils, main  # noqa: E402
from sushy_tools.emulator.resources import chassis, drives, storage  # noqa: E402
from sushy_tools.emulator.resources.systems import fakedriver  # noqa: E402

low, high = peer['delay']
# The driver adds its random whole seconds to the whole second that it is.
fakedriver.random = types.SimpleNamespace(randint=lambda *_: random.uniform(low, high) + time.time() % 1)


def asked():
    """Which BMC a request came in at, or None outside of one."""
    if not flask.has_request_context():
        return None
    return peer['addresses'].index(flask.request.environ['SERVER_NAME'])


class Systems(fakedriver.FakeDriver):
    @property
    def systems(self):
        i = asked()
        if i is None:
            return list(uuids)
        return [] if i in shelves else [uuids[i]]

    def _get(self, identity):
        i = asked()
        if i is not None and self._by_name.get(identity, identity) != uuids[i]:
            raise error.NotFound('System %s was not found' % identity)
        return super()._get(identity)

    # What the fake driver has no answer for.
    def get_total_memory(self, identity):
        return self._get(identity).get('memory_gb', 512)

    def get_total_cpus(self, identity):
        return 2

    def get_processors(self, identity):
        return [{'id': 'CPU%d' % i, 'Id': 'CPU%d' % i, 'socket': 'CPU %d' % i, 'vendor': 'v', 'model': 'm', 'cores': '64', 'threads': '128'} for i in range(2)]

    def get_simple_storage_collection(self, identity):
        return {'nvme': {'Id': 'nvme', 'Name': 'nvme', 'DeviceList': [{'Name': 'nvme0', 'CapacityBytes': 960 * 10**9}]}}

    def get_bios(self, identity):
        return {'BootMode': 'Uefi'}

    def get_versions(self, identity):
        return self._get(identity).get('versions') or {'BiosVersion': '1.0.0'}

    def set_versions(self, identity, firmware_versions):
        self._update(identity, versions={**self.get_versions(identity), **firmware_versions})


class Chassis(chassis.StaticDriver):
    @property
    def chassis(self):
        i = asked()
        return super().chassis if i is None else [self._config['SUSHY_EMULATOR_CHASSIS'][i]['UUID']]


def own(pairs):
    i = asked()
    return [p for p in pairs if i is None or p[0] == uuids[i]]


class Storage(storage.StaticDriver):
    def get_all_storage(self):
        return own(super().get_all_storage())


class Drives(drives.StaticDriver):
    def get_all_drives(self):
        return own(super().get_all_drives())


fakedriver.FakeDriver, chassis.StaticDriver = Systems, Chassis
storage.StaticDriver, drives.StaticDriver = Storage, Drives
app = main.app
app.systems, app.chassis, app.managers, app.indicators  # made now, not by two requests at once


@app.route('/redfish/v1/Chassis/<identity>/Actions/Chassis.Reset', methods=['POST'])
@api_utils.returns_json
def reset_chassis(identity):
    if asked() not in shelves or app.chassis.uuid(identity) not in app.chassis.chassis:
        raise error.NotFound('Chassis %s has no reset' % identity)
    app.systems.set_power_state(uuids[asked()], flask.request.json.get('ResetType'))
    return '', 204


@app.after_request
def power_shelf(response):
    if flask.request.endpoint == 'chassis_resource' and flask.request.method == 'GET' and response.status_code == 200 and asked() in shelves:
        chassis = response.get_json()
        chassis['PowerState'] = app.systems.get_power_state(uuids[asked()])
        chassis['Actions'] = {'#Chassis.Reset': {
            'target': chassis['@odata.id'] + '/Actions/Chassis.Reset', 'ResetType@Redfish.AllowableValues': ['On', 'ForceOff', 'GracefulShutdown']}}
        response.set_data(json.dumps(chassis))
    return response


journal = open(os.path.join(peer['dir'], 'journal'), 'a')
writing = threading.Lock()


@app.before_request
def begin():
    flask.g.began = time.time()


# The first that is registered is called last: what it notes is what is answered.
def note(response):
    line = {'began': flask.g.get('began', time.time()), 'bmc': peer['addresses'][asked()], 'method': flask.request.method,
            'path': flask.request.path, 'status': response.status_code, 'agent': flask.request.headers.get('User-Agent', '')}
    if flask.request.method == 'POST':
        line['reset'] = (flask.request.get_json(silent=True) or {}).get('ResetType', '')
    else:
        line['power'] = (response.get_json(silent=True) or {}).get('PowerState', '') if response.is_json else ''
    line['ended'] = time.time()
    with writing:
        journal.write(json.dumps(line) + '\n')
        journal.flush()
    if 'reset' in line and asked() in losing:
        flask.request.environ['werkzeug.socket'].shutdown(socket.SHUT_RDWR)
    return response


app.after_request_funcs[None].insert(0, note)

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(peer['cert'], peer['key'])
for address in peer['addresses']:
    server = serving.make_server(address, peer['port'], app, threaded=True)
    # The handshake is made in the request's own thread: a silent client blocks nobody.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.ssl_context = context
    threading.Thread(target=server.serve_forever, daemon=True).start()
stop = threading.Event()
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: stop.set())
print('ready', flush=True)
stop.wait()
