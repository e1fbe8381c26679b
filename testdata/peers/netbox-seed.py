#!/usr/bin/env python3
"""Fills the NetBox of netbox-up.sh with users, tokens and two small sites.

    netbox-seed.py ENV      run by NetBox's own Python; ENV gets what was made

It changes nothing when it is run again. What is odd on purpose: two racks of one
name in two halls, a device without a name, serial numbers that are none,
addresses of BMCs that are missing, every status, custom fields of every kind.
Four trays are cabled.
"""
import os
import sys

os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'netbox.settings')
import django

django.setup()
from core.models import ObjectType
from dcim import models as dcim
from django.contrib.auth import get_user_model
from django.contrib.contenttypes.models import ContentType
from extras.models import CustomField, CustomFieldChoiceSet, Tag
from ipam.models import IPAddress
from tenancy.models import Tenant
from users.models import ObjectPermission, Token


def once(table, by, **rest):
    """The object with these values, made where it is missing."""
    found = table.objects.filter(**by).first()
    if found is None:
        found = table(**by, **rest)
        found.save()
    return found


# Tokens: of an administrator, of one who may change the first site only, of one
# who may nothing.
User = get_user_model()
admin = once(User, {'username': 'admin'}, is_superuser=True)
limited, nobody = once(User, {'username': 'limited'}), once(User, {'username': 'nobody'})
for user, name, write in (admin, 'TOKEN', True), (admin, 'TOKEN_READ_ONLY', False), (limited, 'TOKEN_LIMITED', True), (nobody, 'TOKEN_NONE', True):
    plain = os.environ[name]
    if not Token.objects.filter(plaintext=plain).exists():
        Token(version=1, user=user, token=plain, write_enabled=write, description=name).save()
for name, action, constraint, tables in (
        ('view', 'view', None, ('device', 'site', 'rack', 'location', 'devicerole', 'devicetype')),
        ('change', 'change', [{'site__slug': 'site-a'}], ('device',))):
    permission, new = ObjectPermission.objects.get_or_create(name=name, defaults={'actions': [action], 'constraints': constraint})
    if new:
        permission.object_types.set(ObjectType.objects.filter(app_label='dcim', model__in=tables))
        permission.users.set([limited])

site = {s: once(dcim.Site, {'slug': s}, name=s.replace('-', ' ').title(), status='active') for s in ('site-a', 'site-b')}
hall = {h: once(dcim.Location, {'slug': h}, name=h.replace('-', ' ').title(), site=site[s], status='active')
        for h, s in (('hall-1', 'site-a'), ('hall-2', 'site-a'), ('hall-3', 'site-b'))}
rack = {(h, n): once(dcim.Rack, {'name': n, 'location': hall[h]}, site=hall[h].site, u_height=48)
        for h, n in (('hall-1', 'R01'), ('hall-1', 'R02'), ('hall-2', 'R01'), ('hall-3', 'R09'))}
maker = once(dcim.Manufacturer, {'slug': 'acme'}, name='Acme')
kind = once(dcim.DeviceType, {'slug': 'tray'}, manufacturer=maker, model='Tray', u_height=1)
role = {r: once(dcim.DeviceRole, {'slug': r}, name=r, color='2196f3') for r in ('compute', 'nvswitch', 'powershelf', 'tor', 'pdu')}
tenant = once(Tenant, {'slug': 'research'}, name='Research')
tag = {t: once(Tag, {'slug': t}, name=t.replace('-', ' ')) for t in ('gpu', 'pilot', 'do-not-touch')}

device_type = ObjectType.objects.get(app_label='dcim', model='device')
choices = {n: once(CustomFieldChoiceSet, {'name': n}, extra_choices=c) for n, c in (
    ('stages', [['new', 'New'], ['burn_in', 'Burn-in'], ['production', 'Production']]),
    ('features', [['ib', 'InfiniBand'], ['roce', 'RoCE'], ['nvme', 'NVMe']]))}
for name, type, rest in (
        ('resource_class', 'text', {}), ('stage', 'select', {'choice_set': choices['stages']}),
        ('features', 'multiselect', {'choice_set': choices['features']}), ('ready', 'boolean', {}), ('slot', 'integer', {}),
        ('power_kw', 'decimal', {}), ('warranty_end', 'date', {}), ('blob', 'json', {}),
        ('spare_site', 'object', {'related_object_type': ObjectType.objects.get(app_label='dcim', model='site')})):
    field = once(CustomField, {'name': name}, type=type, **rest)
    field.object_types.set([device_type])


def interface(device, name, type, mac=None, **rest):
    """A new interface of a device, with a MAC address of its own."""
    port = dcim.Interface(device=device, name=name, type=type, **rest)
    port.save()
    if mac:
        address = dcim.MACAddress(mac_address=mac, assigned_object=port)
        address.save()
        port.primary_mac_address = address
        port.save()
    return port


statuses = ['active'] * 6 + ['planned', 'staged', 'failed', 'inventory', 'decommissioning', 'offline']
serials = {0: '', 4: 'Not Specified', 7: '0123456789', 8: '0123456789'}
shape = ['compute'] * 12 + ['nvswitch'] * 4 + ['powershelf', 'tor', 'pdu']
places = [('hall-1', 'R01', r) for r in shape] + [('hall-1', 'R02', 'compute')] * 12 + [('hall-2', 'R01', 'compute')] * 4 + [('hall-3', 'R09', 'compute')] * 5
interface_type = ContentType.objects.get_for_model(dcim.Interface)
for i, (h, r, kind_of) in enumerate(places):
    name = '%s-%s-%02d' % (h.replace('hall-', 'h'), r.lower(), i + 1)
    if dcim.Device.objects.filter(name=name).exists():
        continue
    d = dcim.Device(
        name=name, device_type=kind, role=role[kind_of], site=hall[h].site, location=hall[h], rack=rack[h, r], position=i % 24 + 1, face='front',
        status=statuses[i % len(statuses)], serial=serials.get(i, 'SN%06d' % i), asset_tag='A%05d' % i if i % 3 else None, tenant=tenant if i % 2 else None,
        custom_field_data={'resource_class': 'gb200' if kind_of == 'compute' else None, 'slot': i, 'ready': i % 2 == 0, 'power_kw': 10.5,
                           'stage': ['new', 'burn_in', 'production'][i % 3], 'features': ['ib', 'nvme'] if i % 2 else None,
                           'spare_site': site['site-b'].pk if i == 1 else None, 'blob': {'a': [1, None]} if i == 1 else None, 'warranty_end': '2029-01-31'})
    d.save()
    d.tags.set([tag[t] for t, w in (('gpu', kind_of == 'compute'), ('do-not-touch', i == 3)) if w])
    if i != 5:
        port = interface(d, 'BMC', '1000base-t', '02:bc:00:00:00:%02x' % i, mgmt_only=True)
        address = IPAddress(address='10.1.0.%d/16' % (i + 1), assigned_object_type=interface_type, assigned_object_id=port.pk)
        address.save()
        d.oob_ip = address
        d.save()
    if kind_of == 'compute':
        interface(d, 'eth0', '400gbase-x-osfp', '02:e0:00:00:00:%02x' % i)
# Four trays are cabled to the switch of their rack.
tor = dcim.Device.objects.get(role=role['tor'], name__startswith='h1-r01')
for n, port in enumerate(dcim.Interface.objects.filter(name='eth0', device__name__startswith='h1-r01').order_by('device__name')[:4], 1):
    if port.cable is None:
        far = dcim.Interface.objects.filter(device=tor, name='swp%d' % n).first() or interface(tor, 'swp%d' % n, '400gbase-x-osfp')
        dcim.Cable(a_terminations=[port], b_terminations=[far], status='connected').save()

if not dcim.Device.objects.filter(name=None).exists():
    dcim.Device(device_type=kind, role=role['pdu'], site=site['site-a'], status='active').save()

with open(sys.argv[1], 'w') as out:
    print('NETBOX_SITE=site-a', 'NETBOX_OTHER_SITE=site-b', sep='\n', file=out)
    for s, key in ('site-a', 'NETBOX_DEVICES'), ('site-b', 'NETBOX_OTHER_DEVICES'):
        print('%s=%d' % (key, dcim.Device.objects.filter(site=site[s]).count()), file=out)
    # A v2 token is shown once, when it is made: each run makes a new one.
    Token.objects.filter(version=2).delete()
    token, plain = Token(version=2, user=admin), Token.generate()
    token.token = plain
    token.save()
    print('NETBOX_TOKEN_V2=nbt_%s.%s' % (token.key, plain), file=out)
